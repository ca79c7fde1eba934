"""Open capture files, kept between appends and bounded in number."""

from __future__ import annotations

import contextlib
import errno
import resource
import threading
from collections import OrderedDict
from pathlib import Path

from otel_gym_jsonl.files import CaptureFile

DESCRIPTOR_TRIES = 4  # what is closed for one thread, another may take
MOST_IN_USE = 192  # beyond one for each thread
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def out_of_descriptors(error: Exception) -> bool:
    """Whether the process, or the system, has no descriptor left."""
    return isinstance(error, OSError) and error.errno in _OUT_OF_DESCRIPTORS


class Handles:
    """At most `limit` open files; the least recently used one is closed first.

    A file that is in use belongs to its user: more than so many are open only while so many are in use. The server
    needs descriptors for its sockets too, so never more than a quarter of what the process may open is kept.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._limit = limit if soft == resource.RLIM_INFINITY else max(1, min(limit, soft // 4))
        self.directory = directory
        self._idle: OrderedDict[str, CaptureFile] = OrderedDict()
        self._in_use = 0
        self._lock = threading.Lock()

    def take(self, rollout_id: str) -> CaptureFile:
        """The open file of a rollout, for the caller alone: give it back with `give`, or `drop` it.

        Raises:
            OSError: the file cannot be opened.
        """
        surplus = None
        with self._lock:
            file = self._idle.pop(rollout_id, None)
            self._in_use += 1
            if file is None and self._idle and len(self._idle) + self._in_use > self._limit:
                _, surplus = self._idle.popitem(last=False)
        if file is not None:
            return file
        if surplus is not None:
            _close(surplus)
        try:
            return self._open(rollout_id)
        except BaseException:
            self._is_back()
            raise

    @property
    def room(self) -> int:
        """How many more files one thread may use at once, where it can do with fewer: half, since others ask too."""
        return max(0, min(self._limit, MOST_IN_USE) - self._in_use) // 2

    @property
    def some_come_back(self) -> bool:
        """Whether files are in use: who finds no descriptor left may find one later."""
        return self._in_use > 0

    def _open(self, rollout_id: str) -> CaptureFile:
        tries = DESCRIPTOR_TRIES
        while True:
            try:
                return CaptureFile(self.directory, rollout_id)
            except OSError as exc:
                tries -= 1
                if not tries or not out_of_descriptors(exc):
                    raise
            self.close()

    def give(self, rollout_id: str, file: CaptureFile) -> None:
        """Keep a file for the next append of its rollout."""
        surplus = None
        with self._lock:
            self._in_use -= 1
            self._idle[rollout_id] = file
            if len(self._idle) + self._in_use > self._limit:
                _, surplus = self._idle.popitem(last=False)
        if surplus is not None:
            _close(surplus)

    def drop(self, file: CaptureFile) -> None:
        """Close a file that must not be used again."""
        self._is_back()
        _close(file)

    def _is_back(self) -> None:
        with self._lock:
            self._in_use -= 1

    def close(self) -> None:
        """Close every file that is not in use."""
        with self._lock:
            idle, self._idle = self._idle, OrderedDict()
        for file in idle.values():
            _close(file)


def _close(file: CaptureFile) -> None:
    with contextlib.suppress(OSError):  # what was appended was fsynced, or its failure was reported: no news in this
        file.close()
