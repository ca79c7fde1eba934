"""A service as a child process: started on free ports, waited for, its words in a file, ended by its id."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from demo.child import stop, wait_until

SECONDS_TO_START = 120.0  # on a machine that builds something else
SECONDS_TO_STOP = 10.0


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
        ChildError: it ended, or was not ready in time.
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
        wait_until(ready, child, log, SECONDS_TO_START)
        yield child.pid
    finally:
        stop(child, SECONDS_TO_STOP)
