"""Whether a collection runs on a capture directory: it holds a lock there, and will send the rollouts' root spans."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final

COLLECT_LOCK_FILE: Final = ".otel-gym-collect.lock"
"""Name of the file in a capture directory on which a running collection holds an exclusive `flock`."""

FRESH_SECONDS: Final = 0.2


class Collection:
    """Tells whether one runs. Asked from writer threads, never from an event loop: it looks at the file system.

    The lock is tried, shared and without waiting, for some microseconds: who wants to hold it tries more than once.

    Args:
        directory: the capture directory.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / COLLECT_LOCK_FILE
        self._running = False
        self._looked_at = float("-inf")

    def runs(self) -> bool:
        """As it was at most 0.2 s ago."""
        now = time.monotonic()
        if now - self._looked_at > FRESH_SECONDS:
            self._running = is_held(self._path)
            self._looked_at = now
        return self._running


def is_held(path: Path) -> bool:
    """Whether somebody holds an exclusive `flock` on this file; no file is made, and an unreadable one is not held."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
