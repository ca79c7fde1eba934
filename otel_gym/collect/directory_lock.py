"""The lock of a capture directory, held as long as a collection runs on it.

One collection holds it, others wait behind it to take it over, each of rollouts of its own: two that ran one rollout
would clear and mix its calls. Each appends a line that says which are its own, then reads: of two that share one, the
one whose line came later is refused. A line counts as long as its collection keeps its output locked: a killed one is
in nobody's way.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from otel_gym.collect import locks
from otel_gym.collect.claims import Claim
from otel_gym.collect.errors import BusyError
from otel_gym.collecting import COLLECT_LOCK_FILE, said, say, unattributed_calls

_COLLECTION = "collection"
_TRIES = 5
_WAYS_OUT = "wait for its end, or give this one a directory and model servers of its own"


class DirectoryLock:
    """The lock of one directory. The kernel gives it back when the process ends, however it ends.

    Args:
        directory: the capture directory.
        output: the file of rows, which this collection keeps locked as long as it runs.
        claim: the rollouts that it runs.

    Raises:
        BusyError: another collection runs one of them.
        OSError: the file cannot be made, written or locked.
    """

    def __init__(self, directory: Path, output: Path, claim: Claim) -> None:
        self.directory = directory
        self.path = directory / COLLECT_LOCK_FILE
        self._output = output.resolve()
        self._read_to = 0
        self._reading = threading.Lock()
        self._unattributed = Counter[str]()
        self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._releasing = threading.Lock()
        self._waits = False
        try:
            self._stand_in_line(claim)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give it back; the file stays, so that nobody ever locks a file without a name."""
        with self._releasing:
            fd, self._fd = self._fd, -1
            if fd >= 0 and not self._waits:
                _give_back(fd)

    def unattributed(self) -> Counter[str]:
        """Model calls without a rollout, by reason, that model servers have told of since this was taken. Reads a file.

        Raises:
            OSError: it cannot be read.
        """
        with self._reading:
            for end, what in said(self.path, self._read_to):
                self._read_to = end
                self._unattributed.update(unattributed_calls(what))
            return self._unattributed.copy()

    def _stand_in_line(self, claim: Claim) -> None:
        alone = self._is_first()
        token = secrets.token_hex(8)
        own: dict[str, Any] = {"process": os.getpid(), "on": socket.gethostname(), "writes": str(self._output)}
        say(self._fd, {_COLLECTION: {**own, "token": token, "rollouts": claim.told()}})
        lines = self._lines()
        self._read_to = place = next(end for end, other in lines if other.get("token") == token)
        for end, other in lines:
            shared = claim.shared_with(Claim.of(other.get("rollouts"))) if end < place else None
            if shared is not None and self._runs(other, alone):
                raise BusyError(
                    f"{self.directory}: another collection runs rollout {shared} on this capture directory "
                    f"({_holder(other)}), and model calls of the two would be mixed; {_WAYS_OUT}"
                )
        if not alone:
            self._waits = True
            threading.Thread(target=self._take_over, args=(self._fd,), name="otel-gym-lock", daemon=True).start()

    def _is_first(self) -> bool:
        """Take the lock where nobody has it; else somebody who says so runs, whose line may be on its way."""
        for _ in range(_TRIES):
            if locks.take(self._fd):
                if not any(self._runs(other, True) for _, other in self._lines()):  # one may be about to take it over
                    os.ftruncate(self._fd, 0)
                return True
            if any(self._runs(other, False) for _, other in self._lines()):
                return False
        raise BusyError(
            f"{self.directory}: another process holds {self.path.name}, and does not say which rollouts it runs; "
            f"{_WAYS_OUT}"
        )

    def _take_over(self, fd: int) -> None:
        """On a thread of its own: wait for the lock as long as others have it, even if it is not wanted any more."""
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        with self._releasing:
            self._waits = False
            if self._fd < 0:
                _give_back(fd)

    def _lines(self) -> list[tuple[int, dict[str, Any]]]:
        """Where the lines of collections end, and what they say; a resumed one's stands for that of its killed one."""
        latest: dict[object, tuple[int, dict[str, Any]]] = {}
        for end, what in said(self.path):
            other = what.get(_COLLECTION)
            if isinstance(other, dict):
                latest[other.get("writes")] = (end, other)
        return list(latest.values())

    def _runs(self, other: dict[str, Any], alone: bool) -> bool:
        """Whether the collection of a line runs still; one elsewhere does as long as anybody else has the lock."""
        if other.get("on") != socket.gethostname():
            return not alone
        output = Path(str(other.get("writes")))
        try:
            return not output.samefile(self._output) and locks.is_kept(output)
        except OSError:  # it was taken away, or is not ours to open
            return _is_alive(other.get("process"))


def _give_back(fd: int) -> None:
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def _is_alive(process: object) -> bool:
    if type(process) is not int or process <= 0:
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _holder(other: dict[str, Any]) -> str:
    return ", ".join(f"{name} {other.get(name)!s:.300}" for name in ("process", "on", "writes"))
