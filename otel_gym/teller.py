"""The teller: tells metrics and mirror of calls whose records are on disk, when clients and writers do not need the
interpreter.

One after the other, in the order in which the records became durable.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

logger = logging.getLogger(__name__)

LINGER_SECONDS: Final = 0.05
"""Calls that come within it are told of in a row: a thread that wakes for each costs more than what it does."""

GIVE_WAY_SECONDS: Final = 1.0
"""How long those who are told wait for a crowd to pass."""

IN_A_ROW: Final = 4
"""Then the server's threads come in between."""

LOOK_SECONDS: Final = 0.02
LAST_SECONDS: Final = 1.0
"""How long the end of the process waits until all is told."""

IDLE_SECONDS: Final = 10.0
"""A thread that finds nothing to do for so long ends."""


class Tellable(Protocol):
    """Something to tell: `size` is what it takes in memory until then, in bytes."""

    size: int

    def tell(self) -> None:
        """Tell it. Called once."""
        ...


class Teller:
    """Tells what it is given on a thread of its own, which runs as long as there is something to tell.

    While the writers are crowded it gives way, for a second at most. What waits is bounded: beyond that, who comes
    with more tells of those before. Safe from any thread; a forked child starts over with nothing to tell.

    Args:
        crowded: whether many records wait for their disk now.
        max_bytes: bound of what waits, in bytes of memory.
        owner: kept while the thread runs, since it sends what is told; afterwards it goes when nobody else needs it.
    """

    def __init__(self, crowded: Callable[[], bool], max_bytes: int, owner: object = None) -> None:
        self._owner = None if owner is None else weakref.ref(owner)
        self._crowded = crowded
        self._max_bytes = max_bytes
        self._enough_bytes = max_bytes - max_bytes // 8
        self.begin_anew()
        _tellers.add(self)

    def begin_anew(self) -> None:
        """All that a process has to itself; a forked child has nothing of its parent's to tell."""
        self._lock = threading.Lock()
        self._some = threading.Condition(self._lock)
        self._none = threading.Condition(self._lock)
        self._order = threading.Lock()  # of the one who tells
        self._waiting: deque[Tellable] = deque()
        self._bytes = 0
        self._pressed = threading.Condition(self._lock)
        self._hurried = 0
        self._thread: threading.Thread | None = None
        self._sleeps = False

    # ------------------------------------------------------------------ any thread

    def put(self, one: Tellable) -> None:
        """Have it told, soon. Told at once, by the caller, where no thread is to be had."""
        with self._lock:
            self._waiting.append(one)
            before, self._bytes = self._bytes, self._bytes + one.size
            no_thread = not self._ensure_thread()
            if self._sleeps:
                self._sleeps = False
                self._some.notify()
            elif before <= self._enough_bytes < self._bytes:
                self._pressed.notify()
        while (no_thread or self._bytes > self._max_bytes) and self._tell_next():
            pass

    def flush(self, timeout: float) -> bool:
        """Tell what waits, without giving way; returns whether nothing is left. Blocks, for so many seconds at most."""
        with self._lock:
            self._hurried += 1
            self._pressed.notify_all()
            done = self._none.wait_for(lambda: not self._bytes, timeout)
            self._hurried -= 1
        return done

    def _ensure_thread(self) -> bool:
        """With the lock held: whether there is a thread."""
        if self._thread is None:
            _flush_at_exit()
            owner = None if self._owner is None else self._owner()
            thread = threading.Thread(target=self._run, args=(owner,), name="otel-gym-teller", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the process is ending, or at its limit
                return False
            self._thread = thread
        return True

    def _tell_next(self) -> bool:
        """Tell the one that came first; False when none waits."""
        with self._order:
            try:
                one = self._waiting.popleft()
            except IndexError:
                return False
            try:
                one.tell()
            except Exception:
                with contextlib.suppress(Exception):  # a log handler that raises must not end our thread
                    logger.exception("otel-gym: what follows on a record failed")
            finally:
                with self._lock:
                    self._bytes -= one.size
                    if not self._bytes:
                        self._none.notify_all()
        return True

    # ------------------------------------------------------------------ the teller's thread

    def _run(self, _owner: object) -> None:
        while self._wait():
            if not self._is_pressed_within(LINGER_SECONDS):
                self._give_way()
            for told in range(len(self._waiting)):
                if told % IN_A_ROW == 0:
                    time.sleep(0)
                self._tell_next()

    def _wait(self) -> bool:
        """Until there is something to tell; False when the thread is to end."""
        with self._lock:
            while not self._waiting:
                self._sleeps = True
                if not self._some.wait(IDLE_SECONDS) and not self._waiting:
                    self._sleeps = False
                    self._thread = None
                    return False
        return True

    def _give_way(self) -> None:
        until = time.monotonic() + GIVE_WAY_SECONDS
        while self._crowded() and time.monotonic() < until:
            if self._is_pressed_within(LOOK_SECONDS):
                return

    def _is_pressed_within(self, seconds: float) -> bool:
        """Whether somebody waits for it, or room runs out: known at once, or after so many seconds."""
        with self._lock:
            return self._pressed.wait_for(lambda: self._hurried > 0 or self._bytes > self._enough_bytes, seconds)


_tellers: weakref.WeakSet[Teller] = weakref.WeakSet()


def _begin_all_anew() -> None:
    for teller in list(_tellers):
        teller.begin_anew()


def _flush_all() -> None:
    for teller in list(_tellers):
        teller.flush(LAST_SECONDS)


@functools.cache
def _flush_at_exit() -> None:
    """Once there is something to tell: what is registered last comes first, and who is told was there before."""
    atexit.register(_flush_all)


os.register_at_fork(after_in_child=_begin_all_anew)
