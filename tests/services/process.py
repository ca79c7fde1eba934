"""A service as a child process: started on free ports, waited for, its words in a file, ended by its id."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

SECONDS_TO_START = 120.0  # on a machine that builds something else
SECONDS_TO_STOP = 10.0


class ServiceError(RuntimeError):
    """A service did not come up; the message holds the end of its log."""


@contextlib.contextmanager
def running(
    command: Sequence[str | Path], *, log: Path, ready: Callable[[], bool], variables: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Run a service until the context ends, and give its process id.

    Args:
        command: the program and its arguments.
        log: file that takes all that it says.
        ready: whether it answers; asked again and again, an `OSError` counts as no.
        variables: what its environment has beyond ours.

    Raises:
        ServiceError: it ended, or was not ready in time.
    """
    # If this process is killed (a test that hangs ends so), the service goes with it.
    leash = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
    with log.open("wb") as output:
        child = subprocess.Popen(
            [*leash, *map(str, command)],
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until(ready, child, log)
        yield child.pid
    finally:
        _stop(child)


def _wait_until(ready: Callable[[], bool], child: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < give_up and child.poll() is None:
        with contextlib.suppress(OSError):
            if ready():
                return
        time.sleep(0.05)
    state = "is silent" if child.returncode is None else f"ended with exit code {child.returncode}"
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
    raise ServiceError(f"{child.args!r} {state}; the end of {log}:\n{tail}")


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
