"""The rollout that code runs for, where no URL can carry it.

    with otel_gym.rollout("3-1"):
        await agent.run(task)       # calls of a client that `carry` has seen go under /ng-rollout/3-1

The rollout is a context variable: each thread and each task has its own, and a task begins with that of its maker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from otel_gym.correlation import enter, leave
from otel_gym_jsonl.errors import InvalidRolloutIdError
from otel_gym_jsonl.files import is_rollout_id


@contextmanager
def rollout(rollout_id: str | None) -> Iterator[str | None]:
    """Run the block for a rollout; `otel_gym.current_rollout_id()` is its id there. None: for no rollout.

    Raises:
        InvalidRolloutIdError: the id is none that a rollout may have (also a ValueError).
    """
    if rollout_id is not None and not is_rollout_id(rollout_id):
        raise InvalidRolloutIdError(rollout_id)
    outer = enter(rollout_id)
    try:
        yield rollout_id
    finally:
        leave(outer)
