"""A disk that refuses, stops short or hangs, below Python: no client notices, no loss goes unmarked."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from otel_gym_jsonl import CaptureStore
from tests.faults.conftest import Start
from tests.faults.processes import asked, eventually, served

REFUSALS = [errno.ENOSPC, errno.EIO, errno.EDQUOT]


@pytest.mark.parametrize("number", REFUSALS, ids=errno.errorcode.get)
@pytest.mark.parametrize(
    "fault",
    ["write a.capture.jsonl fail {} 0 1", "write a.capture.jsonl short 100 0 1\nwrite a.capture.jsonl fail {} 0 1"],
    ids=["nothing written", "half written"],
)
def test_a_refused_write_costs_its_record_and_is_marked(
    start: Start, disk_faults: Path, fault: str, number: int
) -> None:
    child = start(library=disk_faults)
    child.serve(asked("a", 1), asked("b", 1))
    child.disk(*fault.format(number).splitlines())
    child.serve(asked("a", 2, filler=3000), asked("b", 2))
    assert child.store.path_for("a").read_bytes().endswith(b"}\n")
    child.serve(asked("a", 3), asked("b", 3))
    assert (["1", "3"], ["1", "2", "3"]) == (child.uniques("a"), child.uniques("b"))
    assert (True, False) == (child.is_marked("a"), child.is_marked("b"))
    assert 1 == len(child.errors())


@pytest.mark.parametrize("number", REFUSALS, ids=errno.errorcode.get)
def test_a_refused_fsync_costs_its_record_and_leaves_nothing_of_it(
    start: Start, disk_faults: Path, number: int
) -> None:
    child = start(library=disk_faults)
    child.serve(asked("a", 1), asked("b", 1))
    child.disk(f"fsync a.capture.jsonl fail {number} 0 1")
    child.serve(asked("a", 2), asked("b", 2))
    child.serve(asked("a", 3), asked("b", 3))
    assert (["1", "3"], ["1", "2", "3"]) == (child.uniques("a"), child.uniques("b"))
    assert (True, False) == (child.is_marked("a"), child.is_marked("b"))
    assert 1 == len(child.errors())


def test_a_refused_fsync_of_the_directory_is_a_refused_record(start: Start, disk_faults: Path) -> None:
    child = start(library=disk_faults)
    child.disk(f"fsync . fail {errno.EIO} 0 1")
    child.serve(asked("a", 1))
    child.serve(asked("a", 2))
    assert (["2"], True) == (child.uniques("a"), child.is_marked("a"))


@pytest.mark.parametrize(
    "fault",
    [
        f"fsync a.capture.jsonl fail {errno.EIO} 0 1",
        f"write a.capture.jsonl short 1000 0 1\nwrite a.capture.jsonl fail {errno.ENOSPC} 0 1",
    ],
    ids=["fsync", "write"],
)
def test_a_group_that_fails_is_tried_line_by_line_and_no_line_is_there_twice(
    start: Start, disk_faults: Path, fault: str
) -> None:
    child = start(library=disk_faults)
    child.serve(asked("a", 0))
    child.disk("fsync a.capture.jsonl hang 300 0 1")
    first = child.begin("calls", calls=[asked("a", 1)])
    assert eventually(lambda: child.store.path_for("a").read_bytes().count(b"\n") == 2)
    group = child.begin("calls", calls=[asked("a", number) for number in range(2, 12)])  # they wait together
    child.disk("fsync none hang 0 0 0", *fault.splitlines())
    served(first)
    served(group)
    assert [str(number) for number in range(12)] == sorted(child.uniques("a"), key=int)
    assert (False, []) == (child.is_marked("a"), child.errors())


def test_where_the_cut_fails_too_the_next_append_starts_on_a_fresh_line(start: Start, disk_faults: Path) -> None:
    child = start(library=disk_faults)
    child.serve(asked("a", 1))
    child.disk(
        "write a.capture.jsonl short 100 0 1",
        f"write a.capture.jsonl fail {errno.EIO} 0 1",
        f"ftruncate a.capture.jsonl fail {errno.EIO} 0 -1",
    )
    child.serve(asked("a", 2))
    child.disk()
    child.serve(asked("a", 3))
    records, damaged = CaptureStore(child.directory).read_available("a")
    assert ([(0, "1"), (2, "3")], 1) == ([(index, record["request"]["unique"]) for index, record in records], damaged)
    assert child.is_marked("a")


def test_a_group_whose_cut_fails_is_lost_as_a_whole_and_spoils_nothing(start: Start, disk_faults: Path) -> None:
    child = start(library=disk_faults)
    child.serve(asked("a", 0))
    child.disk("fsync a.capture.jsonl hang 300 0 1")
    first = child.begin("calls", calls=[asked("a", 1)])
    assert eventually(lambda: child.store.path_for("a").read_bytes().count(b"\n") == 2)
    group = child.begin("calls", calls=[asked("a", number) for number in range(2, 6)])
    child.disk(
        "write a.capture.jsonl short 900 0 1",
        f"write a.capture.jsonl fail {errno.EIO} 0 1",
        f"ftruncate a.capture.jsonl fail {errno.EIO} 0 -1",
    )
    served(first)
    served(group)
    child.disk()
    child.serve(asked("a", 6))
    records, damaged = child.store.read_available("a")
    uniques = [record["request"]["unique"] for _, record in records]
    assert (["0", "1"], "6", 1, True) == (uniques[:2], uniques[-1], damaged, child.is_marked("a"))
    assert len(set(uniques)) == len(uniques)


def test_writes_that_stop_short_are_carried_on(start: Start, disk_faults: Path) -> None:
    child = start(library=disk_faults)
    child.disk("write a.capture.jsonl short 7 0 -1")
    child.serve(asked("a", 1), asked("a", 2), asked("b", 1))
    assert (["1", "2"], ["1"]) == (sorted(child.uniques("a")), child.uniques("b"))
    assert (False, []) == (child.is_marked("a"), child.errors())


def test_a_file_that_takes_no_bytes_at_all_ends_as_a_loss(start: Start, disk_faults: Path) -> None:
    child = start(library=disk_faults)
    child.disk("write a.capture.jsonl short 0 0 -1")
    child.serve(asked("a", 1), asked("b", 1))
    assert (True, ["1"], False) == (child.is_marked("a"), child.uniques("b"), child.is_marked("b"))


def test_errors_of_close_cost_nothing(start: Start, disk_faults: Path) -> None:
    child = start(library=disk_faults, max_open_files=1)
    child.disk(f"close * fail {errno.EIO} 0 -1")
    child.serve(*(asked(rollout, 1) for rollout in "abcdef"))
    child.store.path_for("a").unlink()
    child.serve(*(asked(rollout, 2) for rollout in "abcdef"))
    child.do("close")
    assert [["2"], *[["1", "2"]] * 5] == [child.uniques(rollout) for rollout in "abcdef"]
    assert ([], False) == (child.errors(), any(child.is_marked(rollout) for rollout in "abcdef"))


@pytest.mark.parametrize("operation", ["flock", "open"])
def test_a_file_that_cannot_be_locked_or_opened_is_a_marked_loss(
    start: Start, disk_faults: Path, operation: str
) -> None:
    child = start(library=disk_faults)
    child.disk(f"{operation} a.capture.jsonl fail {errno.ENOLCK} 0 -1")
    for number in range(20):
        child.serve(asked("a", number), asked("b", number))
    before = child.do("descriptors")
    assert (True, False, 20) == (child.is_marked("a"), child.is_marked("b"), len(child.uniques("b")))
    child.disk()
    child.serve(asked("a", 20))
    assert ["20"] == child.uniques("a")
    assert before + 2 >= child.do("descriptors")


@pytest.mark.parametrize("operation", ["write", "fsync", "open", "flock"])
def test_a_dead_disk_lets_the_answer_go_marks_the_rollout_and_leaves_others_alone(
    start: Start, disk_faults: Path, operation: str
) -> None:
    child = start(library=disk_faults, write_timeout_s=0.5)
    child.serve(asked("b", 0))
    child.disk(f"{operation} a.capture.jsonl hang 4000 0 1")
    dead = child.begin("calls", calls=[asked("a", 1)])
    for number in range(1, 20):
        child.serve(asked("b", number))
    served(dead)
    assert eventually(lambda: child.is_marked("a"))
    assert 1 == len(child.errors())
    assert ([str(number) for number in range(20)], False) == (child.uniques("b"), child.is_marked("b"))
    child.serve(asked("a", 2), asked("b", 20))  # the disk has come back, or the next one is let go as well
    assert not child.is_marked("b")


@pytest.mark.slow
def test_many_dead_files_do_not_use_up_the_writers(start: Start, disk_faults: Path) -> None:
    child = start(library=disk_faults, write_timeout_s=2, writer_threads=2)
    child.disk("fsync dead hang 6000 0 40")
    dead = child.begin("calls", calls=[asked(f"dead-{number}", 1) for number in range(40)])
    for number in range(10):
        child.serve(*(asked(f"b{rollout}", number) for rollout in range(5)))
    served(dead)
    assert eventually(lambda: all(child.is_marked(f"dead-{number}") for number in range(40)))
    for rollout in range(5):
        assert ([str(number) for number in range(10)], False) == (
            child.uniques(f"b{rollout}"),
            child.is_marked(f"b{rollout}"),
        )
    assert eventually(lambda: child.do("threads") < 20)


def test_a_marker_that_cannot_be_written_is_owed_until_it_stands(start: Start, disk_faults: Path) -> None:
    child = start(library=disk_faults)
    child.disk(f"write a.capture.jsonl fail {errno.EIO} 0 -1", f"open incomplete fail {errno.EROFS} 0 -1")
    child.serve(asked("a", 1), asked("b", 1))
    assert (False, ["1"]) == (child.is_marked("a"), child.uniques("b"))
    child.disk()
    assert eventually(lambda: child.is_marked("a"))
    assert not child.is_marked("b")


@pytest.mark.slow
def test_a_hanging_marker_holds_no_shutdown(start: Start, disk_faults: Path) -> None:
    child = start(library=disk_faults, write_timeout_s=0.3)
    child.disk(
        "fsync a.capture.jsonl hang 20000 0 1",
        "open incomplete hang 20000 0 1",
    )
    child.serve(asked("a", 1))
    assert child.do("shut_down") < 15


def test_what_a_slow_disk_has_accepted_is_drained_at_shutdown(start: Start, disk_faults: Path) -> None:
    child = start(library=disk_faults)
    child.disk("fsync capture.jsonl hang 300 0 -1")
    child.do("abandoned", calls=[asked(f"r{number}", 1, seconds=0.5) for number in range(8)])
    child.do("shut_down")
    assert [1] * 8 == [len(child.store.read(f"r{number}")) for number in range(8)]
    assert [] == child.errors()


def test_what_a_slow_disk_has_accepted_is_drained_at_exit(start: Start, disk_faults: Path) -> None:
    child = start(library=disk_faults)
    child.disk("fsync capture.jsonl hang 300 0 -1")
    child.do("abandoned", calls=[asked(f"r{number}", 1, seconds=0.5) for number in range(8)])
    assert 0 == child.leave()
    assert [1] * 8 == [len(child.store.read(f"r{number}")) for number in range(8)]


@pytest.mark.slow
def test_what_could_not_be_written_before_the_end_is_marked(start: Start, disk_faults: Path) -> None:
    child = start(library=disk_faults)
    child.disk("write a.capture.jsonl hang 30000 0 -1")
    child.do("abandoned", calls=[asked("a", 1, seconds=0.5), asked("b", 1, seconds=0.5)])
    assert 0 == child.leave()
    assert (True, False, 1) == (child.is_marked("a"), child.is_marked("b"), len(child.store.read("b")))
