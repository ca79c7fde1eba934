"""The lock of a capture directory, held as long as a collection runs on it.

Several collections may hold it, each of rollouts of its own: two that ran one rollout would clear and mix its calls.
Each appends a line that says which are its own, then reads: of two that share one, the one whose line came later is
refused. A line counts as long as its collection keeps the lock of its output: a killed one is in nobody's way.
"""

from __future__ import annotations

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
_TRIES = 3
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
        try:
            self._share()
            self._stand_in_line(claim)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give it back; the file stays, so that nobody ever locks a file without a name."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

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

    def _share(self) -> None:
        """Hold it together with others; where there is nobody, what is said in it is of the past."""
        for _ in range(_TRIES):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            else:
                os.ftruncate(self._fd, 0)
            if locks.take(self._fd, shared=True):  # from exclusive to shared is in two steps: somebody may come between
                return
        raise BusyError(
            f"{self.directory}: another process holds {self.path.name} for itself alone, and does not say which "
            f"rollouts it runs; {_WAYS_OUT}"
        )

    def _stand_in_line(self, claim: Claim) -> None:
        token = secrets.token_hex(8)
        own: dict[str, Any] = {"process": os.getpid(), "on": socket.gethostname(), "writes": str(self._output)}
        say(self._fd, {_COLLECTION: {**own, "token": token, "rollouts": claim.told()}})
        latest: dict[object, tuple[int, dict[str, Any]]] = {}  # a resumed collection's line stands for its killed one's
        place = 0
        for end, what in said(self.path):
            other = what.get(_COLLECTION)
            if isinstance(other, dict):
                latest[other.get("writes")] = (end, other)
                if other.get("token") == token:
                    place = end
        self._read_to = place
        for end, other in latest.values():
            if end >= place:
                continue
            shared = claim.shared_with(Claim.of(other.get("rollouts")))
            if shared is not None and self._runs(other):
                raise BusyError(
                    f"{self.directory}: another collection runs rollout {shared} on this capture directory "
                    f"({_holder(other)}), and model calls of the two would be mixed; {_WAYS_OUT}"
                )

    def _runs(self, other: dict[str, Any]) -> bool:
        """Whether the collection of a line runs still; one elsewhere does as long as anybody holds the lock."""
        if other.get("on") != socket.gethostname():
            return True
        output = Path(str(other.get("writes")))
        try:
            return not output.samefile(self._output) and locks.is_kept(output)
        except OSError:  # it was taken away, or is not ours to open
            return _is_alive(other.get("process"))


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
