"""One capture file: its names, its lock, and an append that leaves whole lines only.

The lock is BSD `flock`, the kind that the reference takes, so that both can append to one file. Everything here blocks;
it is called on writer threads, never on an event loop.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import weakref
from pathlib import Path

from otel_gym_jsonl import locks
from otel_gym_jsonl.errors import InvalidRolloutIdError

logger = logging.getLogger(__name__)

CAPTURE_SUFFIX = ".capture.jsonl"
MARKER_SUFFIX = ".capture.incomplete"
LONG_ID_MARKER_SUFFIX = ".capture.lost"  # of ids that leave no room for the other: the longest of all fits with it
MAX_NAME_BYTES = 255

_WRITABLE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_READABLE_ID = re.compile(r"[A-Za-z0-9._-]+")
_REOPEN_TRIES = 16


def is_rollout_id(rollout_id: str) -> bool:
    """Whether calls of this id are captured: one safe path segment that gives a file name of at most 255 bytes."""
    return len(rollout_id) <= MAX_NAME_BYTES - len(CAPTURE_SUFFIX) and bool(_WRITABLE_ID.fullmatch(rollout_id))


def capture_path(directory: Path, rollout_id: str) -> Path:
    """Where the records of a rollout lie.

    More lenient than `is_rollout_id`, so that a reference's odd files (`...capture.jsonl`) can be read.

    Raises:
        InvalidRolloutIdError: the id holds anything but `[A-Za-z0-9._-]`.
    """
    return directory / (_readable(rollout_id) + CAPTURE_SUFFIX)


def marker_path(directory: Path, rollout_id: str) -> Path:
    """Where the empty file lies that says: a record of this rollout could not be written.

    Raises:
        InvalidRolloutIdError: the id holds anything but `[A-Za-z0-9._-]`.
    """
    fits = len(_readable(rollout_id)) <= MAX_NAME_BYTES - len(MARKER_SUFFIX)
    return directory / (rollout_id + (MARKER_SUFFIX if fits else LONG_ID_MARKER_SUFFIX))


def is_marked(directory: Path, rollout_id: str) -> bool:
    """Whether the marker of a rollout stands; a symbolic link is one, wherever it points. Raises as `marker_path`."""
    return os.path.lexists(marker_path(directory, rollout_id))


def captured_id(name: str) -> str | None:
    """The rollout whose capture file has this name; None when it is the name of none."""
    rollout_id = name.removesuffix(CAPTURE_SUFFIX)
    return rollout_id if rollout_id != name and is_readable_id(rollout_id) else None


def marked_id(name: str) -> str | None:
    """The rollout whose marker has this name; None when it is the name of none."""
    for suffix in (MARKER_SUFFIX, LONG_ID_MARKER_SUFFIX):
        rollout_id = name.removesuffix(suffix)
        if rollout_id != name and is_readable_id(rollout_id) and marker_path(Path(), rollout_id).name == name:
            return rollout_id
    return None


def is_readable_id(rollout_id: str) -> bool:
    """Whether a reader can ask for this id: one path segment of `[A-Za-z0-9._-]`."""
    return bool(_READABLE_ID.fullmatch(rollout_id))


def _readable(rollout_id: str) -> str:
    if not is_readable_id(rollout_id):
        raise InvalidRolloutIdError(rollout_id)
    return rollout_id


def write_marker(directory: Path, rollout_id: str) -> None:
    """Put the marker of a rollout in place, durably; making the directory anew when it has gone.

    One that stands already is left as it is, whoever's it may be.

    Raises:
        InvalidRolloutIdError: records of such an id are never written (`is_rollout_id`), and so none can be lost.
        OSError: the disk refuses.
    """
    if not is_rollout_id(rollout_id):
        raise InvalidRolloutIdError(rollout_id)
    path = marker_path(directory, rollout_id)
    if not path.exists():
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, 0o644)
        except FileNotFoundError:
            _make_again(directory)
            fd = os.open(path, flags, 0o644)
        os.close(fd)
    sync_directory(directory)


def make_directory(directory: Path) -> bool:
    """Make a directory, durably, with those above it that are missing; one that is there is left as it is.

    Returns whether it has been made.

    Raises:
        OSError: it cannot be made, or its entry above cannot be made durable: then it has not been made.
    """
    try:
        directory.mkdir()
    except FileNotFoundError:
        make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
    except OSError:
        if directory.is_dir():
            return False
        raise
    try:
        sync_directory(directory.parent)
    except PermissionError:
        pass  # one that may be written but not read: there is no way to sync it
    except OSError:
        with contextlib.suppress(OSError):  # else the next try would take it for durable
            directory.rmdir()
        raise
    return True


def _make_again(directory: Path) -> None:
    """Make a directory that is missing; say what went with it where this process had capture files in it.

    Of single files that go nothing is said: a rollout's is removed on purpose before the rollout is run again.
    """
    if make_directory(directory) and directory in _written_to:
        with contextlib.suppress(Exception):  # of a log handler
            logger.warning(
                "otel-gym: the directory %s was removed while records were written to it, and has been made "
                "again: the records of before are not in it, and no marker says so; run their rollouts again",
                directory,
            )


def sync_directory(directory: Path) -> None:
    """Make the entries of a directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        with contextlib.suppress(OSError):  # nothing was written through it
            os.close(fd)


class CaptureFile:
    """An open capture file, kept from one append to the next.

    Use: `lock()` (or `try_lock()`), `append(lines)`, `unlock()`; `close()` in the end. One thread at a time.

    Attributes:
        path: where it lies.
        restored: whether the last append that failed left nothing behind, so that its lines may be tried again.
    """

    def __init__(self, directory: Path, rollout_id: str, suffix: str = CAPTURE_SUFFIX) -> None:
        self.path = directory / (_readable(rollout_id) + suffix)
        self._name = str(self.path)
        self.restored = True
        self._directory = directory
        self._fd = -1
        self._locked = False
        self._identity = (-1, -1)  # device and inode behind the descriptor
        self._whole_size = -1  # the size that our own last append left behind: no need to look at the tail
        self._size = 0  # when it was locked, and after each append
        self._written = 0  # what comes on top when it is synced
        _open_files.add(self)  # before there is a descriptor, so that a fork at any moment finds it
        self._open()

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            self._fd = os.open(self.path, flags, 0o644)
        except FileNotFoundError:  # the directory has gone, or was never there
            _make_again(self._directory)
            self._fd = os.open(self.path, flags, 0o644)
        _written_to.add(self._directory)
        self._locked = False
        status = os.fstat(self._fd)
        self._identity = (status.st_dev, status.st_ino)
        self._whole_size = -1

    def close(self) -> None:
        """Give the lock and the descriptor back."""
        if self._fd >= 0:
            if self._locked:  # a child forked at this moment has the descriptor, and would keep the lock
                with contextlib.suppress(OSError):
                    self.unlock()
            fd, self._fd = self._fd, -1
            os.close(fd)

    def lock(self) -> None:
        """Wait for the exclusive lock of the file that has the name now.

        Raises:
            OSError: the system gives no lock, or the file cannot be opened anew.
        """
        self._lock(wait=True)

    def try_lock(self) -> bool:
        """Take the exclusive lock unless somebody else holds it; raises as `lock` does."""
        try:
            self._lock(wait=False)
        except BlockingIOError:
            return False
        return True

    def _lock(self, *, wait: bool) -> None:
        """Lock, then make sure that the name still means this file; else open the file that it means now."""
        for _ in range(_REOPEN_TRIES):
            locks.lock(self._fd, wait=wait)
            self._locked = True
            try:
                status = os.stat(self._name)  # noqa: PTH116  one system call on the hot path
            except FileNotFoundError:
                pass
            else:
                if (status.st_dev, status.st_ino) == self._identity:
                    self._size = status.st_size
                    return
            with contextlib.suppress(OSError):  # what was appended to it was fsynced: nothing can be lost here
                self.close()
            self._open()
        raise OSError(f"{self.path} was replaced {_REOPEN_TRIES} times while it was being locked")

    def unlock(self) -> None:
        """Release the lock, keep the file open.

        Raises:
            OSError: the system refuses; closing the file releases the lock all the same.
        """
        if self._fd >= 0:
            locks.unlock(self._fd)
            self._locked = False

    def append(self, lines: bytes) -> None:
        """Append whole lines and fsync them; the lock is held by the caller.

        A torn last line (a killed writer's) stays alone on its line. A write that fails half way is cut back.

        Raises:
            OSError: the lines are not durable; the file ends as it did before, as far as the disk allowed.
        """
        self.write(lines)
        self.sync()

    def write(self, lines: bytes) -> None:
        """The first half of `append`; `sync` or `is_synced` comes next, or `cut_back`.

        Raises:
            OSError: as `append` does.
        """
        size = self._size
        if size and size != self._whole_size and os.pread(self._fd, 1, size - 1) != b"\n":
            lines = b"\n" + lines
        self._whole_size = -1
        try:
            written = os.write(self._fd, lines)
            while written < len(lines):  # a short write says nothing yet: the next one brings the error
                count = os.write(self._fd, memoryview(lines)[written:])
                if count == 0:
                    raise OSError(errno.EIO, "the file takes no more bytes", str(self.path))
                written += count
        except OSError:
            self.cut_back()
            raise
        self._written = written

    def sync(self) -> None:
        """The other half of `append`; raises as it does."""
        try:
            os.fsync(self._fd)
            if self.is_new:
                sync_directory(self._directory)
        except OSError:
            self.cut_back()
            raise
        self.is_synced()

    def is_synced(self) -> None:
        """The other half, done by the caller: file and, of a new one, directory."""
        self._size = self._whole_size = self._size + self._written

    @property
    def is_new(self) -> bool:
        """Whether nothing was in the file when it was locked: its directory's entry may not be durable yet."""
        return self._size == 0

    def fileno(self) -> int:
        """The descriptor, to sync the file by."""
        return self._fd

    def cut_back(self) -> None:
        """Take a failed append away again; where that fails too, the next append starts on a fresh line."""
        self.restored = False
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self._size)
            self.restored = os.fstat(self._fd).st_size == self._size


_open_files: weakref.WeakSet[CaptureFile] = weakref.WeakSet()
_written_to: set[Path] = set()  # the directories in which this process has opened capture files


def _close_in_child() -> None:
    """In a forked child: else it would keep its parent's file locks alive, even after the parent's death."""
    for file in list(_open_files):
        file._locked = False  # the lock is the parent's
        with contextlib.suppress(OSError):
            file.close()


os.register_at_fork(after_in_child=_close_in_child)
