"""A real server killed and told to stop, under load: what a client has seen the end of is on disk."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.faults import model
from tests.faults.processes import eventually
from tests.faults.server import Connection, Server, running

pytestmark = [pytest.mark.slow, pytest.mark.servers]

CLIENTS = 6


class Load:
    """Clients that note each call whose answer they have seen the end of."""

    def __init__(self, server: Server, turn: int) -> None:
        self.acknowledged: list[tuple[str, str]] = []
        self.wrong: list[str] = []
        self._stopped = False
        self._threads = [threading.Thread(target=self._run, args=(server, turn, index)) for index in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _run(self, server: Server, turn: int, index: int) -> None:
        number = 0
        while not self._stopped:
            number += 1
            rollout, unique = f"r{number % 3}", f"{turn}-{index}-{number}"
            filler = 300_000 if number % 2 else 0
            body = model.request(unique, filler=filler, streamed=number % 5 == 0)
            try:
                got = server.ask(rollout, body)
            except (OSError, http.client.HTTPException):
                continue  # the server has died
            if got == b"".join(model.pieces(json.loads(body))):
                self.acknowledged.append((rollout, unique))
            elif not self._stopped:
                self.wrong.append(unique)

    def stop(self) -> None:
        self._stopped = True
        for thread in self._threads:
            thread.join()


def test_killed_over_and_over_under_load_no_acknowledged_record_is_missing(home: Path) -> None:
    acknowledged: list[tuple[str, str]] = []
    torn = {f"r{number}": 0 for number in range(3)}
    with running(home) as server:
        for turn in range(8):
            load = Load(server, turn)
            assert eventually(lambda: len(load.acknowledged) > 30)  # noqa: B023
            time.sleep(turn * 0.013)
            server.end(signal.SIGKILL)
            load.stop()
            acknowledged += load.acknowledged
            for rollout, before in torn.items():
                records, damaged = server.store.read_available(rollout)
                indexes = [index for index, _ in records]
                assert damaged - before in (0, 1)
                if damaged > before:  # the last line, and no other
                    assert indexes[-1] == len(indexes) + before - 1
                torn[rollout] = damaged
                assert not server.store.is_incomplete(rollout)
            server.start()
        found = {
            (rollout, record["request"]["unique"])
            for rollout in torn
            for _, record in server.store.read_available(rollout)[0]
        }
        assert set() == set(acknowledged) - found
        answer = server.ask("r0", model.request("after"))
        assert b"".join(model.pieces(json.loads(model.request("after")))) == answer
        assert "after" == server.store.read_available("r0")[0][-1][1]["request"]["unique"]


def test_a_server_told_to_stop_lets_the_calls_end_and_has_their_records(home: Path) -> None:
    with running(home) as server:
        body = model.request("1", streamed=True, seconds=0.2)
        answers: list[bytes] = []
        thread = threading.Thread(target=lambda: answers.append(server.ask("a", body)))
        thread.start()
        time.sleep(0.3)
        server.end(signal.SIGTERM)
        thread.join()
        assert [b"".join(model.pieces(json.loads(body)))] == answers
        [record] = server.store.read("a")
        assert (None, "1") == (record["error_category"], record["request"]["unique"])


def test_a_call_cut_by_the_end_of_its_server_is_recorded_as_cut(home: Path) -> None:
    with running(home, "--timeout-graceful-shutdown", "1") as server:

        def ask() -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                server.ask("a", model.request("1", streamed=True, seconds=3))

        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(0.5)
        server.end(signal.SIGTERM)
        thread.join()
        [record] = server.store.read("a")
        assert "cancelled" == record["error_category"]
        assert record["response_raw"].encode() == model.pieces(record["request"])[0]


def test_a_slow_disk_has_all_it_accepted_when_the_server_has_stopped(home: Path, disk_faults: Path) -> None:
    rules = home / "rules"
    rules.write_text("fsync capture.jsonl hang 700 0 -1\n")
    with running(
        home,
        LD_PRELOAD=str(disk_faults),
        DISKFAULTS_DIR=str(home / "captures"),
        DISKFAULTS_RULES=str(rules),
    ) as server:
        connections = [Connection(server.socket) for _ in range(5)]
        for number, connection in enumerate(connections):
            path = f"/ng-rollout/r{number}/v1/chat/completions"
            connection.request("POST", path, model.request("1", streamed=True, seconds=0.2))
        time.sleep(0.3)
        for connection in connections:
            connection.close()
        server.end(signal.SIGTERM)
        assert [1] * 5 == [len(server.store.read(f"r{number}")) for number in range(5)]
