"""Markers that are owed: a loss stays on the list until its marker stands on the disk."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Iterable
from pathlib import Path

from otel_gym_jsonl.files import is_rollout_id, write_marker

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
LAST_CHANCE_SECONDS = 1.0


class Markers:
    """Puts `<id>.capture.incomplete` in place, and tries again until it could.

    A disk that refuses a record may refuse its marker too (read-only, full, dead). What is owed is retried once a
    second and with every later append, on a thread of its own that lives only while something is owed, and once more
    when the process ends. A forked child owes nothing: its parent's losses are the parent's.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._start()
        _all.add(self)

    def _start(self) -> None:
        """All that a process has to itself."""
        self._owed: dict[str, None] = {}
        self._lock = threading.Lock()
        self._paid = threading.Condition(self._lock)
        self._writing = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def put(self, rollout_id: str) -> None:
        """Mark a rollout on the calling thread; when the disk refuses, the marker is owed."""
        if not self._can_be_marked(rollout_id):
            return
        try:
            write_marker(self._directory, rollout_id)
        except OSError as exc:
            self.owe(rollout_id)
            with contextlib.suppress(Exception):  # of a log handler
                logger.error(
                    "otel-gym: the marker that rollout %r is incomplete cannot be written (%s); trying until it can",
                    rollout_id,
                    exc,
                )

    def owe(self, rollout_id: str) -> None:
        """Mark a rollout soon, on the markers' own thread: for callers that a dead disk must not hold."""
        if not self._can_be_marked(rollout_id):
            return
        with self._lock:
            self._owed[rollout_id] = None
            self._ensure_thread()
        self._wake.set()

    def _can_be_marked(self, rollout_id: str) -> bool:
        """Whether a marker of this rollout may stand: records of any other id are never written."""
        if is_rollout_id(rollout_id):
            return True
        with contextlib.suppress(Exception):  # of a log handler
            logger.error("otel-gym: rollout %r has lost a record, and its id can name no marker", rollout_id)
        return False

    def forget(self, rollout_ids: Iterable[str]) -> None:
        """Owe these rollouts nothing any more: they begin anew. None of their markers is being written afterwards."""
        with self._writing, self._lock:
            for rollout_id in rollout_ids:
                self._owed.pop(rollout_id, None)

    def nudge(self) -> None:
        """Try the owed ones now: somebody has just written something."""
        if self._owed:
            with self._lock:
                self._ensure_thread()
            self._wake.set()

    def wait(self, timeout: float) -> bool:
        """Give what is owed a last chance of so many seconds; returns whether every marker stands."""
        self.nudge()
        if self._thread is None:  # an ending interpreter starts no threads
            self._pay_once()
        with self._paid:
            return self._paid.wait_for(lambda: not self._owed, timeout)

    @property
    def owed(self) -> list[str]:
        """Rollouts whose marker does not stand yet."""
        with self._lock:
            return list(self._owed)

    def _ensure_thread(self) -> None:
        if self._thread is None and self._owed:
            thread = threading.Thread(target=self._pay, name="otel-gym-markers", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # none to be had now: the next append, or the next loss, asks again
                return
            self._thread = thread

    def _pay(self) -> None:
        while True:
            self._wake.clear()
            self._pay_once()
            with self._lock:
                if not self._owed:
                    self._thread = None
                    self._paid.notify_all()
                    return
            self._wake.wait(RETRY_SECONDS)

    def _pay_once(self) -> None:
        for rollout_id in self.owed:
            with self._writing:
                if rollout_id not in self._owed:  # forgotten meanwhile
                    continue
                try:
                    write_marker(self._directory, rollout_id)
                except OSError:
                    continue
                with self._lock:
                    self._owed.pop(rollout_id, None)


_all: weakref.WeakSet[Markers] = weakref.WeakSet()


def _start_in_child() -> None:
    for markers in list(_all):
        markers._start()


os.register_at_fork(after_in_child=_start_in_child)


@atexit.register
def _last_chance() -> None:
    deadline = time.monotonic() + LAST_CHANCE_SECONDS
    for markers in list(_all):
        if markers.owed:
            markers.wait(max(0.0, deadline - time.monotonic()))
