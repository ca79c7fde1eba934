"""Servers as child processes of the tests."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from demo.child import stop
from otel_gym_jsonl import CaptureStore
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SECONDS_TO_START = 60.0
SECONDS_TO_STOP = 20.0


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Ours with these, and children find the packages where we found them."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables}


@contextlib.contextmanager
def running(
    command: list[str], log: Path, variables: Mapping[str, str], launcher: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """A child process that is stopped in order at the end: a program by its path, or what follows `python -m`.

    Its stdout is a pipe, its stderr goes to the log. A launcher stands before it: `otel-gym run --`.
    """
    program = command if command[0].startswith("/") else [sys.executable, "-m", *command]
    with log.open("wb") as errors:
        child = subprocess.Popen(
            [*launcher, *program],
            cwd=ROOT,
            env=environment(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        yield child
    finally:
        stop(child, SECONDS_TO_STOP)
        if child.stdout is not None:
            child.stdout.close()


@contextlib.contextmanager
def listening(
    command: list[str],
    log: Path,
    variables: Mapping[str, str],
    launcher: Sequence[str] = (),
    seconds: float = SECONDS_TO_START,
) -> Iterator[int]:
    """The same for a server; `{port}` in its command is a free port, which is given once something listens there."""
    port = free_port()
    with running([part.format(port=port) for part in command], log, variables, launcher) as child:

        def listens() -> bool:
            if child.poll() is not None:
                raise AssertionError(f"the server ended:\n{log.read_text(errors='replace')}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
            return False

        wait_until(listens, seconds)
        yield port


def wait_until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return as soon as it is true; AssertionError when it is not within these seconds."""
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up, f"not within {seconds:g} s"
        time.sleep(0.02)


class Served:
    """The servers of `tests.servers.serve`, and the directory that they all write to."""

    def __init__(self, ports: Mapping[str, int], directory: Path) -> None:
        self.ports = ports
        self.store = CaptureStore(directory)

    def url(self, name: str, rollout_id: str) -> str:
        """Base URL of a rollout, without the version of the API."""
        return f"http://127.0.0.1:{self.ports[name]}/ng-rollout/{rollout_id}"

    def records(self, rollout_id: str) -> list[dict[str, Any]]:
        return self.store.read(rollout_id)

    def wait_for_record(self, rollout_id: str) -> dict[str, Any]:
        """The record of a call whose client did not wait for it."""
        wait_until(lambda: bool(self.records(rollout_id)))
        [record] = self.records(rollout_id)
        return record


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[Served]:
    """All servers of `tests.servers.serve`, in one child process."""
    captures = directory / "captures"
    with running(["tests.servers.serve", str(captures)], directory / "servers.log", {}) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line, (directory / "servers.log").read_text(errors="replace")
        yield Served(json.loads(line), captures)
