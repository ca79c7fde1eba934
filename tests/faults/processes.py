"""The test's side of a child process whose disk fails: commands, rules of the library, what lies on the disk."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from otel_gym_jsonl import CaptureStore

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0


def asked(rollout: str, unique: object, **more: Any) -> dict[str, Any]:
    """One call of the child's model."""
    return {"rollout": rollout, "unique": str(unique), **more}


class Process:
    """A child that serves calls on command; see `tests.faults.child`.

    Args:
        directory: of the capture files; its parent gets the rules of the disk's faults.
        library: the preloaded faults, None for a disk that works.
        descriptors: how many the process may have open, None for no change.
        settings: of the capture.
    """

    def __init__(
        self, directory: Path, library: Path | None = None, *, descriptors: int | None = None, **settings: Any
    ) -> None:
        self.directory = directory
        self.store = CaptureStore(directory)
        self._rules = directory.with_name(directory.name + ".rules")
        self.disk()
        environment = dict(os.environ)
        if library is not None:
            environment |= {"LD_PRELOAD": str(library), "DISKFAULTS_DIR": str(directory)}
            environment |= {"DISKFAULTS_RULES": str(self._rules)}
        limited = ["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh"] if descriptors else []
        self.process = subprocess.Popen(
            [*limited, sys.executable, "-m", "tests.faults.child", str(directory), json.dumps(settings)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._waiting: dict[int, Future[Any]] = {0: Future()}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._waiting[0].result(PATIENCE_S)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = json.loads(line)
            waiting = self._waiting[answer["number"]]
            if "error" in answer:
                waiting.set_exception(RuntimeError(answer["error"]))
            else:
                waiting.set_result(answer["result"])
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(EOFError("the child has ended"))

    def disk(self, *rules: str) -> None:
        """From now on the disk fails by these rules; without any it works."""
        new = self._rules.with_suffix(".new")
        new.write_text("".join(f"{rule}\n" for rule in rules))
        new.chmod(0o644)
        new.rename(self._rules)

    def begin(self, do: str, **arguments: Any) -> Future[Any]:
        """Send a command; its result comes later."""
        assert self.process.stdin is not None
        number = len(self._waiting)
        future = self._waiting[number] = Future()
        self.process.stdin.write(json.dumps({"number": number, "do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        return future

    def do(self, do: str, **arguments: Any) -> Any:
        """Send a command and wait for its result."""
        return self.begin(do, **arguments).result(PATIENCE_S)

    def serve(self, *calls: dict[str, Any]) -> float:
        """Serve calls at once; every client gets its bytes. Returns how long the last one waited."""
        return served(self.begin("calls", calls=list(calls)))

    def leave(self) -> int:
        """End of input: the child exits as any program does. Returns its exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self.process.stdout.close()
        return code

    def uniques(self, rollout: str) -> list[str]:
        """What the requests on disk are called, in order; a damaged line fails the test."""
        return [record["request"]["unique"] for record in self.store.read(rollout)]

    def is_marked(self, rollout: str) -> bool:
        return self.store.is_incomplete(rollout)

    def errors(self) -> list[str]:
        errors: list[str] = self.do("errors")
        return errors


def served(answer: Future[Any]) -> float:
    """The end of `begin("calls", …)`: every client got its bytes; returns how long the last one waited."""
    result = answer.result(PATIENCE_S)
    assert result["served"]
    waited: float = result["waited"]
    return waited


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether something comes true within a generous time."""
    deadline = time.monotonic() + PATIENCE_S / 2
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock of a capture file, as a foreign process does."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
