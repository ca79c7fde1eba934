"""What the tests of inputs 22 and 24 run in a process of its own: `python -m tests.field.children <what> <directory>`.

The result is one JSON object on stdout.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from otel_gym.testing import Application, Exchange, ScriptedModel, answer
from tests.field.capture import PATHS, Capture

SMALL, LARGE = b'{"model":"m"}', b'{"model":"m","input":"%s"}' % (b"x" * 9000)


APPLICATIONS: list[Application] = []
"""Held to the end of the process, as servers hold theirs."""


class Errors(logging.Handler):
    """Counts what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


async def call(capture: Capture, body: bytes) -> bool:
    """One call; whether its client got the model's bytes."""
    return await call_of(capture.app(ScriptedModel.of(answer("chat", "hello"))), body)


async def call_of(app: Application, body: bytes = SMALL) -> bool:
    """The same of an application that is there already."""
    async with Exchange(app, f"/ng-rollout/0-0{PATHS['chat']}", body) as exchange:
        await exchange.rest()
    return json.dumps(answer("chat", "hello")).encode() == exchange.body


def full_disk(capture: Capture, fill: Callable[[], None], free: Callable[[], None]) -> dict[str, Any]:
    """A small call, a large one while the disk is nearly full, a small one after space was freed."""
    errors = Errors()
    logging.getLogger().addHandler(errors)

    async def calls() -> list[bool]:
        served = [await call(capture, SMALL)]
        fill()
        served.append(await call(capture, LARGE))
        between.append(capture.store.path_for("0-0").read_bytes())
        free()
        served.append(await call(capture, SMALL))
        await capture.app(capture.nobody).aclose()
        return served

    between: list[bytes] = []
    served = asyncio.run(calls())
    return {
        "served": served,
        "ends_on_a_whole_line": between[0].count(b"\n") == 1 and between[0].endswith(b"\n"),
        "files": capture.files(),
        "requests": [record["request"] for record in capture.records()],
        "errors": errors.messages,
    }


def size_limit(directory: Path) -> dict[str, Any]:
    """The disk is full because no file may grow by more than 2 KB."""
    capture = Capture(directory)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill() -> None:
        limit = capture.store.path_for("0-0").stat().st_size + 2048
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))

    return full_disk(capture, fill, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard)))


def small_file_system(directory: Path) -> dict[str, Any]:
    """The disk is a small one of memory, and something else has filled it up."""
    ballast = directory / "ballast"

    def fill() -> None:
        descriptor = os.open(ballast, os.O_CREAT | os.O_WRONLY)
        try:
            while True:
                os.write(descriptor, bytes(4096))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        finally:
            os.close(descriptor)

    return full_disk(Capture(directory / "captures"), fill, ballast.unlink)


def forks(directory: Path) -> dict[str, Any]:
    """The parent makes the application, serves one call and forks twice; each child serves one, and exits in order."""
    capture = Capture(directory)
    app = capture.app(ScriptedModel.of(answer("chat", "hello")))
    APPLICATIONS.append(app)
    served = [asyncio.run(call_of(app))]
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            sys.exit(0 if asyncio.run(call_of(app)) else 1)
        children.append(child)
    served += [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 for child in children]
    return {
        "served": served,
        "files": capture.files(),
        "ids": [record["model_call_id"] for record in capture.records()],
    }


if __name__ == "__main__":
    what = {"size_limit": size_limit, "small_file_system": small_file_system, "forks": forks}[sys.argv[1]]
    sys.stdout.write(json.dumps(what(Path(sys.argv[2]))) + "\n")
