"""Calls without a rollout are told to a collection that runs, and to nobody else."""

from __future__ import annotations

import fcntl
import logging
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_gym.collecting import COLLECT_LOCK_FILE, said, unattributed_calls
from otel_gym.notices import Notices
from otel_gym.unattributed import Unattributed
from tests.servers.processes import wait_until


def told(directory: Path) -> Counter[str]:
    total = Counter[str]()
    for _, what in said(directory / COLLECT_LOCK_FILE):
        total.update(unattributed_calls(what))
    return total


def idle(notices: Notices) -> Callable[[], bool]:
    return lambda: not notices._telling


def test_a_collection_is_told_how_many_and_why(tmp_path: Path) -> None:
    with (tmp_path / COLLECT_LOCK_FILE).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        servers = [Notices(tmp_path), Notices(tmp_path)]
        for server in servers:
            for _ in range(500):
                server.count("no_prefix")
            server.count("bad_id")
        wait_until(lambda: told(tmp_path).total() == 1002)
        servers[0].count("bad_id")
        wait_until(lambda: told(tmp_path).total() == 1003)
        assert {"no_prefix": 1000, "bad_id": 3} == dict(told(tmp_path))


def test_without_a_collection_nothing_is_made_or_written(tmp_path: Path) -> None:
    notices = Notices(tmp_path)
    notices.count("no_prefix")
    wait_until(idle(notices))
    assert [] == list(tmp_path.iterdir())
    (tmp_path / COLLECT_LOCK_FILE).touch()
    notices.count("no_prefix")
    wait_until(idle(notices))
    assert b"" == (tmp_path / COLLECT_LOCK_FILE).read_bytes()


def test_refused_websockets_are_no_calls(tmp_path: Path) -> None:
    scope = {"type": "websocket", "path": "/v1/responses", "client": None}
    with (tmp_path / COLLECT_LOCK_FILE).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        unattributed = Unattributed(tmp_path)
        unattributed.websocket(scope, "0-0", refused=True)
        unattributed.websocket(scope, "0-0", refused=False)
        unattributed.call(scope, None)
        wait_until(lambda: told(tmp_path).total() == 2)
        assert {"websocket": 1, "no_prefix": 1} == dict(told(tmp_path))


def test_a_forked_child_tells_of_its_own_calls(tmp_path: Path) -> None:
    with (tmp_path / COLLECT_LOCK_FILE).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        notices = Notices(tmp_path)
        notices.count("no_prefix")
        child = os.fork()
        if child == 0:
            notices.count("bad_id")
            wait_until(idle(notices))
            os._exit(0)
        assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        wait_until(idle(notices))
        assert {"no_prefix": 1, "bad_id": 1} == dict(told(tmp_path))


def test_a_file_that_takes_nothing_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "otel_gym.notices")
    notices = Notices(tmp_path)
    failures = 0

    def full(counts: Counter[str]) -> None:
        nonlocal failures
        failures += 1
        raise OSError(28, "No space left on device")

    notices._tell = full  # type: ignore[method-assign]  # as a full disk does it
    for round_ in range(2):
        notices.count("no_prefix")
        wait_until(lambda round_=round_: failures > round_ and idle(notices)())  # type: ignore[misc]  # a default
    assert 1 == len(caplog.messages)
    assert "No space left" in caplog.messages[0]
