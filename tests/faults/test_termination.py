"""Real servers without lifespan that are told to end: an accepted record is on disk, or its rollout marked."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults import model
from tests.faults.processes import held
from tests.faults.server import Connection, Server, running

pytestmark = [pytest.mark.slow, pytest.mark.servers]

PATIENT = ("--timeout-graceful-shutdown", "2")
MADE_BEFORE_THE_SERVER = """
import sys
import uvicorn
from tests.faults.model import captured
uvicorn.run(captured(), uds=sys.argv[1], lifespan="off", timeout_graceful_shutdown=0, access_log=False)
"""
SERVERS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Server]]] = {
    "without lifespan": lambda home: running(home, *PATIENT, "--lifespan", "off"),
    "an application that knows none": lambda home: running(home, *PATIENT, app="tests.faults.model:captured_http_only"),
    "at once": lambda home: running(home, program=MADE_BEFORE_THE_SERVER),
}


@contextlib.contextmanager
def all_but_answered(server: Server) -> Iterator[None]:
    """A call whose answer lacks nothing but its end, which waits for the record."""
    body = model.request("1")
    with contextlib.closing(Connection(server.socket)) as connection:
        connection.request("POST", "/ng-rollout/a/v1/chat/completions", body)
        answer = b"".join(model.pieces(json.loads(body)))
        assert answer == connection.getresponse().read(len(answer))
        yield


@pytest.mark.parametrize("kind", SERVERS)
def test_a_record_that_somebody_keeps_from_the_disk_is_marked_before_the_process_dies(home: Path, kind: str) -> None:
    with SERVERS[kind](home) as server, held(server.store.path_for("a")), all_but_answered(server):
        assert -signal.SIGTERM == server.end(signal.SIGTERM)
        assert server.store.is_incomplete("a")


@pytest.mark.parametrize("kind", SERVERS)
def test_a_record_that_comes_to_the_disk_in_time_is_there_and_nothing_marked(home: Path, kind: str) -> None:
    with SERVERS[kind](home) as server, contextlib.ExitStack() as stack:
        with held(server.store.path_for("a")):
            stack.enter_context(all_but_answered(server))
            server.process.send_signal(signal.SIGTERM)
        assert -signal.SIGTERM == server.process.wait(60)
        assert 1 == len(server.store.read("a"))
        assert not server.store.is_incomplete("a")
