"""The example model server under uvicorn, as a child process."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from demo.child import stop, wait_until

ROOT = Path(__file__).resolve().parent.parent
APP = "examples.model_server:app"
SECONDS_TO_START = 20.0
SECONDS_TO_STOP = 10.0


@contextlib.contextmanager
def serving(log: Path, variables: Mapping[str, str], app: str = APP) -> Iterator[str]:
    """Run an example's server on a free port of 127.0.0.1 and give its URL; at the end it shuts down in order.

    Args:
        log: file that takes all the server says.
        variables: what its environment has beyond ours, less all that ours says of otel-gym.
        app: which application.

    Raises:
        ChildError: it ended, or did not listen in time.
    """
    port = _free_port()
    ours = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_GYM_")}
    command = [sys.executable, "-m", "uvicorn", app, "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as output:
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**ours, **variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def listens() -> bool:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True

    try:
        wait_until(listens, child, log, SECONDS_TO_START)
        yield f"http://127.0.0.1:{port}"
    finally:
        stop(child, SECONDS_TO_STOP)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
