"""File locks of collections, which somebody may hold for a moment only to see whether they are held."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

_TRIES = 10
_PAUSE_S = 0.02


def take(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file, without waiting for one who keeps it; whether it is locked now.

    Raises:
        OSError: the file system gives no lock.
    """
    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(descriptor, how)
        except BlockingIOError:
            if left:
                time.sleep(_PAUSE_S)
        else:
            return True
    return False


def is_kept(path: Path) -> bool:
    """Whether somebody keeps an exclusive lock on a file.

    Raises:
        OSError: it cannot be opened or locked.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        free = take(descriptor, shared=True)
        if free:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        return not free
    finally:
        os.close(descriptor)
