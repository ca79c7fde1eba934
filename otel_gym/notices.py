"""How many calls came without a rollout, told to the collections that run on a capture directory, by their lock file.

Capture alone leaves nothing there: without a collection nothing is written. On an event loop there is but a count.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final

from otel_gym.collecting import COLLECT_LOCK_FILE, UNATTRIBUTED, is_held, say

DELAY_SECONDS: Final = 0.1
"""How long calls are counted before they are told of, in one line."""

logger = logging.getLogger(__name__)


class Notices:
    """Counts, and a thread that is there as long as something is to be told.

    Args:
        directory: the capture directory.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / COLLECT_LOCK_FILE
        self._failed = False
        self._start()

    def _start(self) -> None:
        """All that a process has to itself."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._counts = Counter[str]()
        self._telling = False

    def count(self, reason: str) -> None:
        """One more. Cheap, and from any thread."""
        if self._process != os.getpid():  # a forked child: what its parent counted is told by its parent
            self._start()
        with self._lock:
            self._counts[reason] += 1
            if self._telling:
                return
            self._telling = True
        try:
            threading.Thread(target=self._run, name="otel-gym-notices", daemon=True).start()
        except RuntimeError:  # the process is ending, or at its limit
            self._telling = False

    def _run(self) -> None:
        while True:
            time.sleep(DELAY_SECONDS)
            with self._lock:
                counts, self._counts = self._counts, Counter()
                if not counts:
                    self._telling = False
                    return
            try:
                self._tell(counts)
            except OSError as error:
                if not self._failed:
                    self._failed = True
                    logger.warning(
                        "otel-gym: %s: a collection cannot be told of calls without a rollout: %s (said once)",
                        self._path,
                        error.strerror or error,
                    )

    def _tell(self, counts: Counter[str]) -> None:
        if not is_held(self._path):
            return
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            say(descriptor, {UNATTRIBUTED: dict(counts)})
        finally:
            os.close(descriptor)
