"""fsync of many files at once, by Linux's asynchronous I/O: io_setup(2), io_submit(2), io_getevents(2).

`os.fsync` keeps a thread for one file, and each return has to wait for the interpreter. Here one thread hands over the
files of a whole turn; the kernel syncs them side by side, so that they share commits of the file system's journal.
The effect on each file is that of fsync(2), and so are the errors.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import sys
from collections.abc import Iterator, Sequence

_NUMBERS = {  # of io_setup, io_destroy, io_submit, io_getevents in the system's tables
    "x86_64": (206, 207, 209, 208),
    "aarch64": (0, 1, 2, 4),
}
_FSYNC = 2  # IOCB_CMD_FSYNC of linux/aio_abi.h


class _Request(ctypes.Structure):
    """`struct iocb` of linux/aio_abi.h, on a little-endian machine."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_uint32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("fd", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("event_fd", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    """`struct io_event`: of which request, and what fsync would have returned, or minus its errno."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


class _Time(ctypes.Structure):
    """`struct timespec`."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class Syncs:
    """Syncs up to so many files side by side; for one thread.

    Raises:
        OSError: this system has none of it to give: fsync one by one.
    """

    def __init__(self, most: int) -> None:
        self._call, numbers = _system()
        self._destroy, self._submit, self._get_events = numbers[1:]
        self._most = most
        self._context = ctypes.c_ulong(0)
        if self._call(numbers[0], most, ctypes.byref(self._context)) != 0:
            raise _last_error()
        self._requests = (_Request * most)()
        size = ctypes.sizeof(_Request)
        self._pointers = (ctypes.c_void_p * most)(*(ctypes.addressof(self._requests) + size * n for n in range(most)))
        self._events = (_Event * most)()

    def run(self, descriptors: Sequence[int], pulse: float) -> Iterator[tuple[int, OSError | None] | None]:
        """Sync files of one process, each descriptor once: (descriptor, error) of each as soon as it has ended.

        None whenever there is no news for `pulse` seconds.
        """
        begun = self._begin(descriptors)
        under_way = set(descriptors[:begun])
        try:
            while under_way:
                news = self._news(pulse)
                if not news:
                    yield None
                for descriptor, error in news:
                    under_way.discard(descriptor)
                    yield descriptor, error
        except OSError:
            self._most = 0  # it does not do what it said: never again
        for descriptor in (*under_way, *descriptors[begun:]):
            yield descriptor, _fsync(descriptor)

    def _begin(self, descriptors: Sequence[int]) -> int:
        """How many of them, from the first on, the system takes: fewer when too much is under way, none before 4.18."""
        some = descriptors[: self._most]
        for request, descriptor in zip(self._requests, some, strict=False):
            request.opcode = _FSYNC
            request.fd = request.data = descriptor
        return max(0, int(self._call(self._submit, self._context, len(some), self._pointers)))

    def _news(self, timeout: float) -> list[tuple[int, OSError | None]]:
        time = _Time(int(timeout), int(timeout % 1 * 1e9))
        count = self._call(self._get_events, self._context, 1, self._most, self._events, ctypes.byref(time))
        if count < 0 and ctypes.get_errno() != errno.EINTR:
            raise _last_error()
        return [(event.data, _error(event.result)) for event in self._events[: max(0, count)]]

    def close(self) -> None:
        """Give it back; waits for what is under way."""
        self._call(self._destroy, self._context)


@functools.cache
def _system() -> tuple[ctypes._NamedFuncPointer, tuple[int, int, int, int]]:
    numbers = _NUMBERS.get(platform.machine()) if sys.platform == "linux" and sys.maxsize > 2**32 else None
    if numbers is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return call, numbers


def _fsync(descriptor: int) -> OSError | None:
    try:
        os.fsync(descriptor)
    except OSError as exc:
        return exc
    return None


def _last_error() -> OSError:
    return OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _error(result: int) -> OSError | None:
    return None if result >= 0 else OSError(-result, os.strerror(-result))


def open_syncs(most: int) -> Syncs | None:
    """None where this system has none to give."""
    try:
        return Syncs(most)
    except OSError:
        return None
