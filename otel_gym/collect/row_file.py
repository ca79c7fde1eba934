"""The output: one file of rollout rows, appended durably, repaired when it is opened, tidied when all is done.

A killed collection leaves at most one torn line, the last. Everything here blocks.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from otel_gym.collect.errors import BusyError
from otel_gym.collect.locks import take
from otel_gym.rollouts import raw_rows
from otel_gym_jsonl.files import sync_directory

_BUFFER = 1 << 20


class RowFile:
    """The file, open and locked for this process alone.

    Args:
        path: where it lies; made when missing.

    Raises:
        BusyError: another process collects into it.
        OSError: it cannot be opened or repaired.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if not take(self._fd):
                raise BusyError(
                    f"{path}: another collection writes into this file; wait for its end, or name another output"
                )
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """In bytes."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Give the file and its lock back."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def repair(self) -> bool:
        """Cut a torn last line off, or give a whole one its newline; whether there was a torn line."""
        size = self.size
        if not size or os.pread(self._fd, 1, size - 1) == b"\n":
            return False
        start = self._start_of_last_line(size)
        torn = not _is_row(os.pread(self._fd, size - start, start))
        if torn:
            os.ftruncate(self._fd, start)
            os.fsync(self._fd)
        else:
            self.append(b"\n")
        return torn

    def _start_of_last_line(self, size: int) -> int:
        at = size
        while at:
            before = max(0, at - _BUFFER)
            found = os.pread(self._fd, at - before, before).rfind(b"\n")
            if found >= 0:
                return before + found + 1
            at = before
        return 0

    def append(self, lines: bytes) -> None:
        """Append whole lines; when this returns they are durable.

        Raises:
            OSError: they are not; the file ends as it did before, as far as the disk allowed.
        """
        size = self.size
        try:
            rest = memoryview(lines)
            while rest:
                written = os.write(self._fd, rest)
                if not written:
                    raise OSError(errno.EIO, "the file takes no more bytes", str(self.path))
                rest = rest[written:]
            os.fsync(self._fd)
            if not size:
                sync_directory(self.path.parent)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._fd, size)
            raise

    def rows(self) -> Iterator[tuple[int, dict[str, Any] | None]]:
        """Each line's place in bytes, and its row; None where it is none."""
        at = 0
        with self.path.open("rb", buffering=_BUFFER) as lines:
            for line in lines:
                row = None
                with suppress(ValueError):
                    row = raw_rows.parse(line.rstrip())
                yield at, row
                at += len(line)

    def drop(self, places: set[int]) -> None:
        """Take the lines that begin at these places out; the file is the old one or the new one, never half of it.

        Raises:
            OSError: the disk refused; the file is the old one.
        """
        beside = self.path.with_name(f".{self.path.name}.tidied")  # one name: what a kill left is written over
        fd = os.open(beside, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # before it has the name: nobody comes between
            os.fchmod(fd, os.fstat(self._fd).st_mode & 0o7777)
            with self.path.open("rb", buffering=_BUFFER) as lines, os.fdopen(os.dup(fd), "wb", _BUFFER) as out:
                at = 0
                for line in lines:
                    if at not in places:
                        out.write(line)
                    at += len(line)
            os.fsync(fd)
            beside.replace(self.path)
            sync_directory(self.path.parent)
        except BaseException:
            os.close(fd)
            beside.unlink(missing_ok=True)
            raise
        self._fd, old = fd, self._fd
        os.close(old)


def _is_row(line: bytes) -> bool:
    try:
        raw_rows.parse(line.rstrip())
    except ValueError:
        return False
    return True
