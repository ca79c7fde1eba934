"""A child process that serves: waited for, and ended by its id."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path


class ChildError(RuntimeError):
    """A child did not come up; the message holds the end of its log."""


def wait_until(ready: Callable[[], bool], child: subprocess.Popen[bytes], log: Path, seconds: float) -> None:
    """Return when it answers.

    Args:
        ready: whether it does; asked again and again, an `OSError` counts as no.
        child: who.
        log: what it says.
        seconds: how long at most.

    Raises:
        ChildError: it ended, or was not ready in time.
    """
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up and child.poll() is None:
        with contextlib.suppress(OSError):
            if ready():
                return
        time.sleep(0.05)
    state = "is silent" if child.returncode is None else f"ended with exit code {child.returncode}"
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
    raise ChildError(f"{child.args!r} {state}; the end of {log}:\n{tail}")


def stop(child: subprocess.Popen[bytes], seconds: float) -> None:
    """Ask it to end, and end it when it has not done so in time."""
    child.terminate()
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
