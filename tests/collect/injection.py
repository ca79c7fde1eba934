"""Which rollouts fail at first, and how: the agent injects the failures, the test knows them."""

from __future__ import annotations

FAILS_OF = 20
KINDS = ("status", "malformed", "cut", "timeout")
RETRIED = frozenset({"status", "cut"})
"""The kinds that a collection tries again by itself."""


def failure_of(task: int, rollout: int) -> str | None:
    """How this pair fails the first time; None: it does not."""
    number, rest = divmod(2 * task + rollout, FAILS_OF)
    return KINDS[number % len(KINDS)] if rest == 7 else None
