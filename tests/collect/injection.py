"""Which rollouts fail at first: the agent injects the failures, the test knows them."""

from __future__ import annotations

FAILS_OF = 20


def fails(task: int, rollout: int) -> bool:
    """Whether this pair is one of them."""
    return (2 * task + rollout) % FAILS_OF == 7
