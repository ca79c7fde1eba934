"""The example model server under uvicorn, as a child process."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
APP = "examples.model_server:app"
SECONDS_TO_START = 20.0
SECONDS_TO_STOP = 10.0


class ServerError(RuntimeError):
    """The server did not come up; the message holds the end of its log."""


@contextlib.contextmanager
def serving(log: Path, variables: Mapping[str, str], app: str = APP) -> Iterator[str]:
    """Run an example's server on a free port of 127.0.0.1 and give its URL; at the end it shuts down in order.

    Args:
        log: file that takes all the server says.
        variables: what its environment has beyond ours, less all that ours says of otel-gym.
        app: which application.

    Raises:
        ServerError: it ended, or did not listen in time.
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
    try:
        _wait_until_it_listens(child, port, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        _stop(child)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_it_listens(child: subprocess.Popen[bytes], port: int, log: Path) -> None:
    give_up = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < give_up:
        if child.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    state = "is silent" if child.returncode is None else f"ended with exit code {child.returncode}"
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
    raise ServerError(f"the server {state}; the end of {log}:\n{tail}")


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
