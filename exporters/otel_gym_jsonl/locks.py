"""The advisory lock of a capture file: BSD `flock`, through portalocker.

Its flock flavour by name, whatever `portalocker.LOCKER` has been set to in this process: the reference takes flock,
and a lock of another kind would not see it. Errors are the system's own, as `OSError`.
"""

from __future__ import annotations

import errno

from portalocker import LockException, LockFlags
from portalocker.portalocker import FlockLocker

_FLOCK = FlockLocker()
_SHARED = LockFlags.SHARED
_SHARED_NOW = LockFlags.SHARED | LockFlags.NON_BLOCKING
_EXCLUSIVE = LockFlags.EXCLUSIVE
_EXCLUSIVE_NOW = LockFlags.EXCLUSIVE | LockFlags.NON_BLOCKING


def lock(fd: int, *, shared: bool = False, wait: bool = True) -> None:
    """Take the lock of an open file.

    Raises:
        BlockingIOError: somebody else holds it, and we are not to wait.
        OSError: the system gives none.
    """
    try:
        if shared:
            _FLOCK.lock(fd, _SHARED if wait else _SHARED_NOW)
        else:
            _FLOCK.lock(fd, _EXCLUSIVE if wait else _EXCLUSIVE_NOW)
    except LockException as exc:
        # Releases of portalocker differ in the class that they raise; the system's word is the same.
        number = exc.args[0].errno if exc.args and isinstance(exc.args[0], OSError) else None
        number = errno.EAGAIN if number == errno.EACCES else number or errno.ENOLCK
        raise OSError(number, f"cannot lock: {exc}") from exc


def unlock(fd: int) -> None:
    """Release the lock.

    Raises:
        OSError: the system refuses; closing the file releases the lock all the same.
    """
    try:
        _FLOCK.unlock(fd)
    except LockException as exc:
        raise OSError(errno.ENOLCK, f"cannot unlock: {exc}") from exc
