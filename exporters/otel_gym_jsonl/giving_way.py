"""Long work on another thread gives way to the event loop.

A thread that computes keeps the interpreter for 5 ms at a time, and every client of the loop waits for it. So long work
sleeps for a moment now and then: a loop that waits takes the interpreter there.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LONG_BYTES = 1 << 17
"""Work on fewer bytes than this is over before anybody waits for long."""

_MOMENT_SECONDS = 0.00005


def give_way(size: int) -> None:
    """Between two steps of work on so many bytes: let the loop run first, when they are many."""
    if size >= LONG_BYTES:
        _moment()


def pause_in(size: int) -> Callable[[], None] | None:
    """What to call now and then in work on so many bytes; None where it is over soon."""
    return _moment if size >= LONG_BYTES else None


def _moment() -> None:
    time.sleep(_MOMENT_SECONDS)
