"""Markers that are owed: a loss stays on the list until its marker stands on the disk."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from otel_gym_jsonl.files import write_marker

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class Markers:
    """Puts `<id>.capture.incomplete` in place, and tries again until it could.

    A disk that refuses a record may refuse its marker too (read-only, full, dead). What is owed is retried once a second and
    with every later append, on a thread of its own that lives only while something is owed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._owed: dict[str, None] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def put(self, rollout_id: str) -> None:
        """Mark a rollout on the calling thread; when the disk refuses, the marker is owed."""
        try:
            write_marker(self._directory, rollout_id)
        except OSError as exc:
            logger.error(
                "otel-gym: the marker that rollout %r is incomplete cannot be written (%s); trying until it can",
                rollout_id,
                exc,
            )
            self.owe(rollout_id)

    def owe(self, rollout_id: str) -> None:
        """Mark a rollout soon, on the markers' own thread: for callers that a dead disk must not hold."""
        with self._lock:
            self._owed[rollout_id] = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._pay, name="otel-gym-markers", daemon=True)
                self._thread.start()
        self._wake.set()

    def nudge(self) -> None:
        """Try the owed ones now: somebody has just written something."""
        if self._owed:
            self._wake.set()

    @property
    def owed(self) -> list[str]:
        """Rollouts whose marker does not stand yet."""
        with self._lock:
            return list(self._owed)

    def _pay(self) -> None:
        while True:
            self._wake.clear()
            for rollout_id in self.owed:
                try:
                    write_marker(self._directory, rollout_id)
                except OSError:
                    continue
                with self._lock:
                    self._owed.pop(rollout_id, None)
            with self._lock:
                if not self._owed:
                    self._thread = None
                    return
            self._wake.wait(RETRY_SECONDS)
