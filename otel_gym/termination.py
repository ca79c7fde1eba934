"""SIGTERM: what a process that captures does with its last moments.

Servers drain in their lifespan. Where there is none (`--lifespan off`, an application that knows no lifespan), they let
the signal end the process when they are done: nothing that Python does at the end of a process is done then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final


class Termination:
    """A handler of SIGTERM around the one that was there, which keeps its say.

    Args:
        previous: handler, or `SIG_DFL`.
        told: called when the signal comes. It runs between two instructions of the main thread, so it takes no lock.
        last: called, on a thread, where nobody else handles the signal: then the process dies of it.
        seconds: how long the process waits for `last`.
    """

    def __init__(self, previous: Any, told: Callable[[], None], last: Callable[[], None], seconds: float) -> None:
        self._previous = previous
        self._told = told
        self._last = last
        self._seconds = seconds

    @property
    def is_the_last(self) -> bool:
        """Whether nobody else handles the signal."""
        return not callable(self._previous)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        with contextlib.suppress(Exception):
            self._told()
        if not self.is_the_last:
            self._previous(number, frame)
            return
        signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
        with contextlib.suppress(RuntimeError):  # no thread is to be had
            # The main thread may hold any lock just now: another waits for it in its place.
            thread = threading.Thread(target=self._last, name="otel-gym-last", daemon=True)
            thread.start()
            thread.join(self._seconds)
        signal.raise_signal(number)


_IGNORED: Final = (signal.SIG_IGN, None)  # None: somebody's handler in C


def prepare(told: Callable[[], None], last: Callable[[], None], seconds: float) -> None:
    """Put a `Termination` in place, unless one is; only the main thread can, and a signal that is ignored stays so."""
    if threading.current_thread() is not threading.main_thread():
        return
    previous = signal.getsignal(signal.SIGTERM)
    if previous in _IGNORED or isinstance(previous, Termination):
        return
    with contextlib.suppress(ValueError):  # not the main interpreter
        signal.signal(signal.SIGTERM, Termination(previous, told, last, seconds))


_masks = threading.local()


def _before_fork() -> None:
    """Python forgets what signals a child gets in its first moment: they wait until our handler has gone."""
    if isinstance(signal.getsignal(signal.SIGTERM), Termination):
        _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _after_fork() -> None:
    if (mask := getattr(_masks, "before", None)) is not None:
        del _masks.before
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_fork_in_child() -> None:
    """A child has accepted nothing: it dies of SIGTERM as children do."""
    handler = signal.getsignal(signal.SIGTERM)
    if isinstance(handler, Termination) and handler.is_the_last:
        with contextlib.suppress(ValueError):  # not the main interpreter
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
