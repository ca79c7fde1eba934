"""The writer: order, groups, losses that cost only themselves, markers that are owed, ends that are bounded."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from otel_gym_jsonl.building import GROUP_BYTES, GROUP_LINES, TURN_BYTES, TURN_LANES
from otel_gym_jsonl.files import marked_id
from otel_gym_jsonl.syncs import Syncs
from otel_gym_jsonl.writer import Writer

PATIENCE_S = 30


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "captures"


@pytest.fixture
def writer(directory: Path) -> Iterator[Writer]:
    made = Writer(directory, threads=2)
    yield made
    made.close()


Told = Future[BaseException | None]


def submit(writer: Writer, rollout: str, line: bytes | Exception) -> Told:
    """The future of what the one who waits is told."""
    told: Told = Future()

    def make() -> bytes:
        if isinstance(line, Exception):
            raise line
        return line

    writer.submit(rollout, make, told.set_result)
    return told


def all_told(told: list[Told]) -> list[BaseException | None]:
    return [one.result(PATIENCE_S) for one in told]


def lines(directory: Path, rollout: str = "a") -> bytes:
    return (directory / f"{rollout}.capture.jsonl").read_bytes()


def markers(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if marked_id(path.name))


class Gate:
    """A rollout whose file is locked by somebody else until it opens."""

    def __init__(self, directory: Path, rollout: str = "a") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(directory / f"{rollout}.capture.jsonl", os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def open(self) -> None:
        os.close(self._fd)


def test_lines_of_a_rollout_keep_their_order(writer: Writer, directory: Path) -> None:
    told = [submit(writer, rollout, b"%d\n" % number) for number in range(500) for rollout in ("a", "b")]
    assert [None] * 1000 == all_told(told)
    expected = b"".join(b"%d\n" % number for number in range(500))
    assert (expected, expected, []) == (lines(directory), lines(directory, "b"), markers(directory))
    assert 2 * len(expected) == writer.bytes_written


def test_a_line_that_cannot_be_built_costs_only_itself(
    writer: Writer, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(directory)
    broken = RuntimeError("no line")
    told = [submit(writer, "a", line) for line in (b"1\n", broken, b"2\n")]
    gate.open()
    assert [None, broken, None] == all_told(told)
    assert (b"1\n2\n", ["a.capture.incomplete"], 1) == (lines(directory), markers(directory), writer.lines_lost)
    assert ["otel-gym: a record of rollout 'a' is not on disk: no line"] == caplog.messages


def test_an_id_that_names_no_file_ends_no_thread(writer: Writer, directory: Path) -> None:
    bad = [submit(writer, "../a", b"1\n") for _ in range(5)]
    good = [submit(writer, "a", b"1\n") for _ in range(5)]
    assert all(isinstance(told, ValueError) for told in all_told(bad))
    assert [None] * 5 == all_told(good)
    assert 5 * b"1\n" == lines(directory)


def test_a_group_is_bounded_in_lines_and_in_bytes(writer: Writer, directory: Path) -> None:
    gate = Gate(directory)
    many = [submit(writer, "a", b"%d\n" % number) for number in range(3 * GROUP_LINES + 1)]
    large = [submit(writer, "b", b"%d" % number + b"x" * (GROUP_BYTES // 2) + b"\n") for number in range(5)]
    gate.open()
    assert {None} == set(all_told(many + large))
    assert list(range(3 * GROUP_LINES + 1)) == [int(line) for line in lines(directory).splitlines()]
    assert [b"0", b"1", b"2", b"3", b"4"] == [line[:1] for line in lines(directory, "b").splitlines()]


def a_turn(writer: Writer, *makes: Callable[[], bytes]) -> list[Told]:
    """Jobs of a rollout each, which the only thread finds together: it was held by another until they were there."""
    begun, there = threading.Event(), threading.Event()

    def hold() -> bytes:
        begun.set()
        assert there.wait(PATIENCE_S)
        return b"{}\n"

    held: Told = Future()
    writer.submit("holding", hold, held.set_result)
    assert begun.wait(PATIENCE_S)
    told: list[Told] = [Future() for _ in makes]
    for number, (make, one) in enumerate(zip(makes, told, strict=True)):
        writer.submit(f"r{number}", make, one.set_result)
    there.set()
    return [held, *told]


def test_a_line_that_takes_long_to_build_holds_no_other_of_its_turn(directory: Path) -> None:
    writer = Writer(directory, threads=1)
    others: list[Told] = []

    def slow() -> bytes:
        assert [None] * (TURN_LANES + 4) == all_told(others)
        return b"{}\n"

    told = a_turn(writer, slow, *[lambda: b"{}\n"] * (TURN_LANES + 4))
    others += told[2:]
    assert {None} == set(all_told(told))
    writer.close()
    assert [] == markers(directory)


def test_the_files_of_a_turn_are_synced_side_by_side(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once: list[int] = []
    run = Syncs.run

    def counted(syncs: Syncs, descriptors: Sequence[int], pulse: float) -> Iterator[tuple[int, OSError | None] | None]:
        at_once.append(len(descriptors))
        return run(syncs, descriptors, pulse)

    monkeypatch.setattr(Syncs, "run", counted)
    writer = Writer(directory, threads=1)
    told = a_turn(writer, *[lambda: b"{}\n"] * TURN_LANES)
    assert {None} == set(all_told(told))
    writer.close()
    assert at_once == [TURN_LANES]


def test_without_the_system_s_help_files_are_synced_one_by_one(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_gym_jsonl.writer.open_syncs", lambda _: None)
    writer = Writer(directory, threads=1)
    told = a_turn(writer, *[lambda: b"{}\n"] * TURN_LANES)
    assert {None} == set(all_told(told))
    assert [b"{}\n"] * TURN_LANES == [lines(directory, f"r{number}") for number in range(TURN_LANES)]
    writer.close()


def test_who_waits_for_a_durable_line_is_told_though_its_thread_is_held(directory: Path) -> None:
    writer = Writer(directory, threads=1)
    first: list[Told] = []

    def slow() -> bytes:
        assert [None] == all_told(first)
        return b"{}\n"

    told = a_turn(writer, lambda: b" " * TURN_BYTES + b"{}\n", slow)
    first.append(told[1])
    assert [None] * 3 == all_told(told)
    writer.close()


def test_a_drain_waits_until_everybody_is_told(directory: Path) -> None:
    writer = Writer(directory, threads=1)
    for _ in range(20):
        told = a_turn(writer, *[lambda: b"{}\n"] * TURN_LANES)
        assert writer.drain(PATIENCE_S)
        assert all(one.done() for one in told)
    writer.close()
    assert [] == markers(directory)


def test_after_its_bound_a_line_lets_go_and_leaves_a_marker(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = Writer(directory, timeout=0.2)
    gate = Gate(directory)
    late = submit(writer, "a", b"1\n")
    assert isinstance(late.result(PATIENCE_S), TimeoutError)
    assert writer.markers.wait(PATIENCE_S)
    assert (["a.capture.incomplete"], 1) == (markers(directory), len(caplog.messages))
    gate.open()
    assert submit(writer, "a", b"2\n").result(PATIENCE_S) is None
    assert b"2\n" == lines(directory)[-2:]
    writer.close()


def test_a_log_handler_that_raises_keeps_nobody_waiting(writer: Writer, directory: Path) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("no log")

    handler = Broken()
    logger = logging.getLogger("otel_gym_jsonl")
    logger.addHandler(handler)
    try:
        told = [submit(writer, "a", RuntimeError("no line")) for _ in range(5)]
        assert 5 == len(all_told(told))
        assert submit(writer, "a", b"1\n").result(PATIENCE_S) is None
    finally:
        logger.removeHandler(handler)
    assert ["a.capture.incomplete"] == markers(directory)


def test_a_drain_waits_for_what_was_accepted(writer: Writer, directory: Path) -> None:
    gate = Gate(directory)
    told = [submit(writer, "a", b"%d\n" % number) for number in range(200)]
    threading.Timer(0.1, gate.open).start()
    assert writer.drain(PATIENCE_S)
    assert all(one.done() for one in told)
    assert 200 == len(lines(directory).splitlines())


def test_what_a_drain_gives_up_is_marked_and_told(writer: Writer, directory: Path) -> None:
    gate = Gate(directory)
    told = [submit(writer, "a", b"%d\n" % number) for number in range(3)]
    assert submit(writer, "b", b"1\n").result(PATIENCE_S) is None
    assert not writer.drain(0.05)
    assert all(isinstance(one, TimeoutError) for one in all_told(told))
    assert (["a.capture.incomplete"], 3) == (markers(directory), writer.lines_lost)
    gate.open()


def test_a_closed_writer_starts_anew(writer: Writer, directory: Path) -> None:
    for number in range(3):
        assert submit(writer, "a", b"%d\n" % number).result(PATIENCE_S) is None
        writer.close()
    assert b"0\n1\n2\n" == lines(directory)


def test_closing_over_and_over_under_load_loses_no_line(directory: Path) -> None:
    writer = Writer(directory, threads=2)
    told: list[Told] = []

    def load(rollout: str) -> None:
        told.extend(submit(writer, rollout, b"%d\n" % number) for number in range(400))

    threads = [threading.Thread(target=load, args=(rollout,)) for rollout in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        writer.close()
    for thread in threads:
        thread.join()
    assert [None] * 1200 == all_told(told)
    writer.close()
    expected = b"".join(b"%d\n" % number for number in range(400))
    assert [expected] * 3 == [lines(directory, rollout) for rollout in ("a", "b", "c")]


def test_a_closed_writer_stays_closed_for_what_a_held_lock_releases_later(directory: Path) -> None:
    writer = Writer(directory, threads=1)
    gate = Gate(directory)
    first = submit(writer, "a", b"1\n")
    writer.close(timeout=0.05)  # gives the first up
    second = submit(writer, "a", b"2\n")
    writer.close(timeout=0.05)
    third = submit(writer, "a", b"3\n")
    gate.open()
    told = all_told([first, second, third])
    assert [TimeoutError, TimeoutError, type(None)] == [type(one) for one in told]
    assert b"3\n" == lines(directory)[-2:]
    writer.close()


def test_a_marker_owed_is_tried_again_with_every_append(
    writer: Writer, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_gym_jsonl.markers.RETRY_SECONDS", 10 * PATIENCE_S)
    obstacle = directory / "a.capture.incomplete"
    directory.mkdir()
    obstacle.symlink_to(directory / "missing" / "marker")  # the system refuses to make this file
    assert isinstance(submit(writer, "a", RuntimeError("no line")).result(PATIENCE_S), RuntimeError)
    assert ["a"] == writer.markers.owed
    assert not writer.markers.wait(0.05)
    obstacle.unlink()
    assert submit(writer, "b", b"1\n").result(PATIENCE_S) is None
    deadline = time.monotonic() + PATIENCE_S
    while writer.markers.owed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (["a.capture.incomplete"], []) == (markers(directory), writer.markers.owed)


def open_files(directory: Path) -> list[str]:
    """Of the directory, and itself; what else this process opens and closes meanwhile is other tests' affair."""
    targets = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed while we look
            targets.append(os.readlink(link))  # noqa: PTH115  deleted files too
    return [target for target in targets if target.startswith(str(directory))]


def test_handles_are_kept_and_bounded(directory: Path) -> None:
    writer = Writer(directory, max_open_files=3)
    told = [submit(writer, f"r{number}", b"1\n") for number in range(50)]
    assert [None] * 50 == all_told(told)
    writer.drain(PATIENCE_S)
    assert len(open_files(directory)) == 3
    writer.close()
    assert [] == open_files(directory)


def test_a_file_that_is_in_use_when_its_writer_retires_is_closed_all_the_same(directory: Path) -> None:
    writer = Writer(directory, threads=1)
    open_before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    others = threading.enumerate()
    writer.submit("a", lambda: b"1\n", lambda error: writer.retire())  # told before its file is given back
    writer.drain(PATIENCE_S)
    for thread in set(threading.enumerate()).difference(others):
        thread.join(PATIENCE_S)
    assert open_before == len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_a_rollout_of_the_longest_id_is_marked_too(directory: Path) -> None:
    longest = "r" * 241
    writer = Writer(directory, threads=1)
    assert isinstance(submit(writer, longest, ValueError("no line")).result(PATIENCE_S), ValueError)
    assert ([f"{longest}.capture.lost"], True) == (markers(directory), writer.drain(PATIENCE_S))
    writer.close()


def threads_of(writer: Writer) -> int:
    return writer._threads


def test_two_threads_write_as_long_as_the_disk_is_quick(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLOW_SECONDS", "PATIENCE_SECONDS"):  # whatever else this machine does meanwhile
        monkeypatch.setattr(f"otel_gym_jsonl.writer.{name}", PATIENCE_S)
    writer = Writer(directory, threads=4)
    for turn in range(20):
        told = [submit(writer, f"r{number}", b"%d\n" % turn) for number in range(40)]
        assert {None} == set(all_told(told))
        assert threads_of(writer) <= 2
    writer.close()


def test_more_threads_write_while_some_are_held_and_end_when_none_is(directory: Path) -> None:
    writer = Writer(directory, threads=4)
    begun = threading.Barrier(5)  # four of them, and the test: all at once
    go_on = threading.Event()

    def slow() -> bytes:
        begun.wait(PATIENCE_S)
        assert go_on.wait(PATIENCE_S)
        return b"{}\n"

    told: list[Told] = [Future() for _ in range(4)]
    for number, one in enumerate(told):
        writer.submit(f"slow{number}", slow, one.set_result)
    begun.wait(PATIENCE_S)
    go_on.set()
    assert {None} == set(all_told(told))
    deadline = time.monotonic() + PATIENCE_S
    while threads_of(writer) > 2 and time.monotonic() < deadline:
        assert submit(writer, "quick", b"{}\n").result(PATIENCE_S) is None
    assert threads_of(writer) <= 2
    writer.close()
    assert [] == markers(directory)


def test_those_who_take_their_time_over_what_is_written_hold_no_other_rollout(directory: Path) -> None:
    writer = Writer(directory, threads=2)
    go_on = threading.Event()

    def take_time(_line: bytes | None) -> None:
        assert go_on.wait(2 * PATIENCE_S)

    for number in range(4):
        told: Told = Future()
        writer.submit(f"r{number}", lambda: b"{}\n", told.set_result, take_time)
        assert told.result(PATIENCE_S) is None
    go_on.set()
    writer.close(PATIENCE_S)
    assert [] == markers(directory)
