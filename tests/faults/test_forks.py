"""Forks in full swing: the child has threads, locks and files of its own, the parent goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.conftest import Start
from tests.faults.processes import asked, eventually, held, served


def stands_in_the_queue(pid: int) -> bool:
    """Whether a thread of the process waits in the system's queue for a lock."""
    return any("->" in line and str(pid) in line.split() for line in Path("/proc/locks").read_text().splitlines())


@pytest.mark.slow
def test_a_fork_while_writers_hold_locks_writes_after_them(start: Start, disk_faults: Path) -> None:
    child = start(library=disk_faults, writer_threads=2)
    child.serve(*(asked(f"r{rollout}", "first") for rollout in range(4)))
    child.disk("fsync capture.jsonl hang 60 0 -1")
    for turn in range(10):
        load = [
            child.begin("calls", calls=[asked(f"r{rollout}", f"p{turn}-{call}") for rollout in range(4)])
            for call in range(4)
        ]
        assert 0 == child.do("fork", calls=[asked(f"r{rollout}", f"c{turn}") for rollout in range(4)])
        for answer in load:
            served(answer)
    expected = {"first"} | {f"p{turn}-{call}" for turn in range(10) for call in range(4)}
    expected |= {f"c{turn}" for turn in range(10)}
    for rollout in range(4):
        uniques = child.uniques(f"r{rollout}")
        assert (expected, len(expected)) == (set(uniques), len(uniques))
        ids = {record["model_call_id"] for record in child.store.read(f"r{rollout}")}
        assert len(expected) == len(ids)
    assert [] == child.errors()


@pytest.mark.slow
def test_many_forks_under_load_never_lock_up(start: Start) -> None:
    child = start()
    load = []
    for turn in range(30):
        load.append(child.begin("calls", calls=[asked(f"r{number % 7}", f"p{turn}-{number}") for number in range(50)]))
        assert 0 == child.do("fork", calls=[asked(f"r{number}", f"c{turn}") for number in range(7)])
    for answer in load:
        served(answer)
    uniques = [unique for number in range(7) for unique in child.uniques(f"r{number}")]
    assert (30 * 57, 30 * 57) == (len(uniques), len({*uniques} - {*(f"c{turn}" for turn in range(30))}) + 7 * 30)
    assert [] == child.errors()


def test_a_child_forked_while_a_thread_waits_for_a_foreign_lock_is_free(start: Start) -> None:
    child = start()
    with held(child.store.path_for("a")):
        waiting = child.begin("calls", calls=[asked("a", "parent")])
        assert eventually(lambda: stands_in_the_queue(child.process.pid))
        assert 0 == child.do("fork", calls=[asked("b", "child")])
        assert not waiting.done()
    served(waiting)
    assert (["parent"], ["child"]) == (child.uniques("a"), child.uniques("b"))
