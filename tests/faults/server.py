"""A real server of the tests' model, on a socket file of its own."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from otel_gym_jsonl import CaptureStore
from tests.faults.processes import PATIENCE_S, ROOT, eventually


class Connection(http.client.HTTPConnection):
    """HTTP over the server's own socket file, so that no port is needed."""

    def __init__(self, path: Path) -> None:
        super().__init__("model.test", timeout=PATIENCE_S)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(self._path)


class Server:
    """uvicorn with the tests' model, its capture switched on by environment.

    Args:
        home: a directory with a short path.
        options: of uvicorn's command line.
        app: what uvicorn serves: a factory.
        program: run instead, with the server's socket file as its argument.
        environment: of the server, besides ours.
    """

    def __init__(
        self,
        home: Path,
        *options: str,
        app: str = "tests.faults.model:captured",
        program: str | None = None,
        **environment: str,
    ) -> None:
        self.socket = home / "s"
        self.directory = home / "captures"
        self.store = CaptureStore(self.directory)
        self.log = home / "log"
        command = ["-m", "uvicorn", "--factory", app, "--no-access-log", "--uds", str(self.socket), *options]
        self._command = command if program is None else ["-c", program, str(self.socket)]
        self._environment = environment
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self._command],
                cwd=ROOT,
                env={**os.environ, "OTEL_GYM_MODEL_CALL_CAPTURE_DIR": str(self.directory), **self._environment},
                stdout=log,
                stderr=log,
            )
        assert eventually(self._answers), self.log.read_text()

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), contextlib.closing(Connection(self.socket)) as connection:
            connection.connect()
            return True
        return False

    def ask(self, rollout: str, body: bytes) -> bytes:
        """The whole answer to one call."""
        with contextlib.closing(Connection(self.socket)) as connection:
            connection.request("POST", f"/ng-rollout/{rollout}/v1/chat/completions", body)
            return connection.getresponse().read()

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@contextlib.contextmanager
def running(home: Path, *options: str, **more: Any) -> Iterator[Server]:
    """A server that answers; it is killed in the end if it still runs."""
    server = Server(home, *options, **more)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end(signal.SIGKILL)
