"""Locks that others hold, and other writers on the same files."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from otel_gym_jsonl import CaptureStore
from tests.faults.conftest import Start
from tests.faults.processes import PATIENCE_S, asked, eventually, held, served


def test_a_lock_held_elsewhere_stalls_that_rollout_only(start: Start) -> None:
    child = start()
    with held(child.store.path_for("a")):
        waiting = child.begin("calls", calls=[asked("a", number) for number in range(5)])
        for number in range(50):
            child.serve(asked("b", number), asked("c", number))
        assert not waiting.done()
    served(waiting)
    assert 5 == len(child.uniques("a"))
    assert (50, 50, []) == (len(child.uniques("b")), len(child.uniques("c")), child.errors())


def test_a_lock_that_is_never_released_lets_the_answer_go_and_marks(start: Start) -> None:
    child = start(write_timeout_s=0.4)
    with held(child.store.path_for("a")):
        child.serve(asked("a", 1))
        assert eventually(lambda: child.is_marked("a"))
        assert 1 == len(child.errors())
        child.serve(asked("b", 1))
        child.serve(asked("a", 2))
        assert 2 == len(child.errors())
    child.serve(asked("a", 3), asked("b", 2))
    assert ("3", ["1", "2"], False) == (child.uniques("a")[-1], child.uniques("b"), child.is_marked("b"))


@pytest.mark.slow
def test_many_locked_rollouts_leave_the_others_their_writers(start: Start) -> None:
    child = start(writer_threads=2)
    with contextlib.ExitStack() as locks:
        for number in range(100):
            locks.enter_context(held(child.store.path_for(f"locked-{number}")))
        waiting = child.begin("calls", calls=[asked(f"locked-{number}", 1) for number in range(100)])
        for number in range(20):
            child.serve(*(asked(f"b{rollout}", number) for rollout in range(5)))
        assert not waiting.done()
        assert 120 > child.do("threads")
    served(waiting)
    assert [["1"]] * 100 == [child.uniques(f"locked-{number}") for number in range(100)]
    assert [20] * 5 == [len(child.uniques(f"b{rollout}")) for rollout in range(5)]
    assert [] == child.errors()
    assert eventually(lambda: child.do("threads") < 20)


@pytest.mark.slow
def test_a_held_lock_does_not_hold_the_shutdown_beyond_its_bound(start: Start) -> None:
    child = start()
    with held(child.store.path_for("a")):
        child.do("abandoned", calls=[asked("a", 1, seconds=0.5), asked("b", 1, seconds=0.5)])
        assert 0 == child.leave()
    assert (True, False, 1) == (child.is_marked("a"), child.is_marked("b"), len(child.store.read("b")))


PLAIN_WRITER = """
import fcntl, json, os, sys
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
for number in range(count):
    line = json.dumps({"writer": name, "number": number, "filler": "y" * (number % 700)}) + chr(10)
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())
"""


@pytest.mark.slow
def test_two_processes_of_ours_and_two_plain_writers_share_a_file(start: Start, tmp_path: Path) -> None:
    directory = tmp_path / "shared"
    ours = [start(directory), start(directory)]
    store = CaptureStore(directory)
    path = str(store.path_for("a"))
    plain = [subprocess.Popen([sys.executable, "-c", PLAIN_WRITER, path, name, "500"]) for name in ("p0", "p1")]
    for turn in range(50):
        calls = [
            child.begin("calls", calls=[asked("a", f"{index}-{turn * 10 + number}") for number in range(10)])
            for index, child in enumerate(ours)
        ]
        for answer in calls:
            served(answer)
    assert [0, 0] == [process.wait(PATIENCE_S) for process in plain]
    lines = [json.loads(line) for line in Path(path).read_bytes().splitlines()]
    by_others = [(line["writer"], line["number"]) for line in lines if "writer" in line]
    by_us = sorted(line["request"]["unique"] for line in lines if "request" in line)
    assert [(name, number) for name in ("p0", "p1") for number in range(500)] == sorted(by_others)
    assert sorted(f"{index}-{number}" for index in range(2) for number in range(500)) == by_us
    assert (2000, False, []) == (len(lines), store.is_incomplete("a"), [*ours[0].errors(), *ours[1].errors()])


def test_a_reader_of_the_file_holds_no_writer_for_long(start: Start) -> None:
    child = start()
    for number in range(10):
        call = child.begin("calls", calls=[asked("a", number, filler=100_000)])
        while not call.done():
            child.store.read_available("a")
        served(call)
    assert 10 == len(child.uniques("a"))
