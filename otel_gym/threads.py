"""Threads of our own, for work that must not block an event loop.

A loop's default executor is the application's: it may be full of the very answers that wait for us, or shut down.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

IDLE_SECONDS: Final = 10.0
"""A thread that finds nothing to do for so long ends."""


class Threads:
    """A few daemon threads, started when there is work for them. Works from any event loop, and anew in a forked child.

    Args:
        name: of each thread.
        most: how many run at a time; work beyond that waits.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self.begin_anew()
        _all.add(self)

    def begin_anew(self) -> None:
        """In a forked child: the parent's threads are not here, and its lock may be held."""
        self._some = threading.Condition(threading.Lock())
        self._todo: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._count = 0
        self._idle = 0

    def run(self, work: Callable[[], _Result]) -> asyncio.Future[_Result]:
        """Do this on a thread; to be called on the event loop that waits for the result. Cancelled, it runs on.

        Raises:
            RuntimeError: not one thread can be had.
        """
        future: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        with self._some:
            if self._idle <= len(self._todo) and self._count < self._most:
                thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                try:
                    thread.start()
                    self._count += 1
                except RuntimeError:  # the process ends, or is at its limit
                    if not self._count:
                        raise
            self._todo.append((work, future))
            self._some.notify()
        return future

    def _serve(self) -> None:
        while True:
            with self._some:
                self._idle += 1
                self._some.wait_for(lambda: self._todo, IDLE_SECONDS)
                self._idle -= 1
                if not self._todo:
                    self._count -= 1
                    return
                work, future = self._todo.popleft()
            _do(work, future)
            del work, future  # what they hold is not to live as long as the thread waits


def _do(work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
    result: Any = None
    error: BaseException | None = None
    try:
        result = work()
    except BaseException as exc:  # noqa: BLE001  whoever waits is told
        error = exc
    with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
        future.get_loop().call_soon_threadsafe(_settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():  # cancelled
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


_all: weakref.WeakSet[Threads] = weakref.WeakSet()


def _begin_all_anew() -> None:
    for threads in list(_all):
        threads.begin_anew()


os.register_at_fork(after_in_child=_begin_all_anew)

_aside: Final = Threads("otel-gym-aside", 16)


async def aside(work: Callable[[], object], seconds: float, what: str) -> None:
    """Do something that may block on a thread of our own, and wait for it, but not for longer than so many seconds.

    It fails in the log only: it can take its time, never break what the application does.

    Args:
        work: what to do; it runs on when it is not waited for any more.
        what: it is, for the log: "the last records are written".
    """
    try:
        future = _aside.run(work)
        future.add_done_callback(_forget)
        await asyncio.wait((future,), timeout=seconds)
        if future.done():
            future.result()
        else:
            logger.error("otel-gym: %s for longer than %g s: not waited for", what, seconds)
    except Exception:
        logger.exception("otel-gym: while %s", what)


def _forget(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
