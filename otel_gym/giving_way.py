"""Long work on another thread gives way to the event loop.

A thread that computes keeps the interpreter for 5 ms at a time, and every client of the loop waits for it. So long work
sleeps for a moment now and then: a loop that waits takes the interpreter there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from otel_gym.sse import Event

LONG_BYTES = 1 << 17
"""Work on fewer bytes than this is over before anybody waits for long."""

_EVENTS_BYTES = 1 << 16
_MOMENT_SECONDS = 0.00005


def give_way(size: int) -> None:
    """Between two steps of work on so many bytes: let the loop run first, when they are many."""
    if size >= LONG_BYTES:
        time.sleep(_MOMENT_SECONDS)


def giving_way(stream: Iterable[Event], size: int) -> Iterable[Event]:
    """The events of a body of this size; of a long one with a moment for the loop after every 64 KB."""
    return stream if size < LONG_BYTES else _with_pauses(stream)


def _with_pauses(stream: Iterable[Event]) -> Iterator[Event]:
    size = 0
    for event in stream:
        size += len(event.data)
        if size >= _EVENTS_BYTES:
            size = 0
            time.sleep(_MOMENT_SECONDS)
        yield event
