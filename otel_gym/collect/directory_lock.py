"""The lock of a capture directory, held as long as a collection runs on it.

Two collections would clear and mix each other's rollouts, and the model servers see by it that a root span will come.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from otel_gym.collect.errors import BusyError
from otel_gym.collecting import COLLECT_LOCK_FILE

_TRIES = 10  # a model server that looks whether the lock is held holds it, shared, for some microseconds
_PAUSE_S = 0.02
_LONGEST = 4096


class DirectoryLock:
    """The lock of one directory. The kernel gives it back when the process ends, however it ends.

    Args:
        directory: the capture directory.
        holder: what others are told of this collection.

    Raises:
        BusyError: another collection runs on the directory.
        OSError: the file cannot be made or locked.
    """

    def __init__(self, directory: Path, holder: Mapping[str, Any]) -> None:
        self.path = directory / COLLECT_LOCK_FILE
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not self._locked():
                raise BusyError(
                    f"{directory}: another collection runs on this capture directory ({self._holder()}), and rollouts "
                    "of the same ids would be mixed; wait for its end, or give this one a directory and model servers "
                    "of its own"
                )
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, json.dumps(dict(holder)).encode() + b"\n", 0)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give it back; the file stays, so that nobody ever locks a file without a name."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _locked(self) -> bool:
        for _ in range(_TRIES):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_PAUSE_S)
            else:
                return True
        return False

    def _holder(self) -> str:
        try:
            said = json.loads(os.pread(self._fd, _LONGEST, 0))
            return ", ".join(f"{name} {value}" for name, value in said.items()) or "it does not say which"
        except (OSError, ValueError, AttributeError):
            return "it does not say which"
