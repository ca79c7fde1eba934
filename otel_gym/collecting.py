"""Whether a collection runs on a capture directory, and what its lock file says.

As long as collections run, one of them holds an exclusive `flock` on that file, and they will send the roots of their
rollouts. In it, collections say which rollouts are theirs, and model servers how many calls came without one: a JSON
object a line, with one key that says what it is of. A file that nobody holds is emptied by the next collection.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

COLLECT_LOCK_FILE: Final = ".otel-gym-collect.lock"
"""Name of the file in a capture directory on which a running collection holds an exclusive `flock`."""

FRESH_SECONDS: Final = 0.2
UNATTRIBUTED: Final = "unattributed"
"""The key of a line that a model server writes: calls by reason, since its last such line."""

_HANDED_OVER_S = 0.01  # of several collections, one that waits takes the lock over when its holder ends


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
            ran, self._running = self._running, is_held(self._path)
            if ran and not self._running:
                time.sleep(_HANDED_OVER_S)
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
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # by name: a child forked just now has the descriptor too
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def say(descriptor: int, what: dict[str, Any]) -> None:
    """Append one line; what a killed process left half written stays alone on its line.

    Args:
        descriptor: of the lock file, open for appending.

    Raises:
        OSError: the line is not whole.
    """
    line = memoryview(b"\n" + json.dumps(what).encode() + b"\n")
    while line:
        line = line[os.write(descriptor, line) :]


def said(path: Path, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """Where each line from there on ends, and what it says; lines that say nothing are passed over.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        file.seek(start)
        for line in file:
            if not line.endswith(b"\n"):  # being written
                return
            start += len(line)
            with contextlib.suppress(ValueError):
                what = json.loads(line)
                if isinstance(what, dict):
                    yield start, what


def unattributed_calls(what: dict[str, Any]) -> Counter[str]:
    """Calls without a rollout, by reason, that a line tells of; none where it is of something else."""
    told = what.get(UNATTRIBUTED)
    calls = Counter[str]()
    if isinstance(told, dict):
        calls.update({reason: number for reason, number in told.items() if type(number) is int and number > 0})
    return calls
