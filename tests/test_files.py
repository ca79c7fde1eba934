"""One capture file: whole lines whatever happened before, a lock on the file that has the name now."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from otel_gym.settings import Settings
from otel_gym_jsonl import CaptureStore
from otel_gym_jsonl.errors import InvalidRolloutIdError
from otel_gym_jsonl.files import (
    CaptureFile,
    capture_path,
    captured_id,
    is_marked,
    is_rollout_id,
    make_directory,
    marked_id,
    marker_path,
    write_marker,
)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[CaptureFile]:
    opened = CaptureFile(tmp_path / "captures", "a")
    yield opened
    opened.close()


@contextlib.contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """What a full disk does: a write stops at this size, the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def append(file: CaptureFile, lines: bytes) -> None:
    file.lock()
    try:
        file.append(lines)
    finally:
        file.unlock()


LONGEST = "a" * (255 - len(".capture.jsonl"))


@pytest.mark.parametrize(
    ("rollout_id", "expected"),
    [
        ("0-0", True),
        ("a", True),
        ("A.b_c-d", True),
        (LONGEST, True),
        (LONGEST + "a", False),
        ("", False),
        (".", False),
        ("..", False),
        (".hidden", False),
        ("-x", False),
        ("_x", False),
        ("a/b", False),
        ("a\n", False),
        ("a b", False),
        ("a\0", False),
        ("ä", False),
        ("٣", False),
    ],
)
def test_an_id_is_one_safe_segment_of_a_path(rollout_id: str, expected: bool) -> None:
    assert expected == is_rollout_id(rollout_id)


@pytest.mark.parametrize("rollout_id", ["", "a/b", "../a", "a\0", "a b", "a\n", "ä"])
def test_no_other_id_becomes_a_path(tmp_path: Path, rollout_id: str) -> None:
    for path_of in (capture_path, marker_path):
        with pytest.raises(InvalidRolloutIdError):
            path_of(tmp_path, rollout_id)


def test_odd_ids_of_the_reference_can_be_read(tmp_path: Path) -> None:
    assert tmp_path / "...capture.jsonl" == capture_path(tmp_path, "..")
    assert tmp_path / "-x.capture.incomplete" == marker_path(tmp_path, "-x")


def test_lines_are_appended_and_the_directory_is_made(file: CaptureFile) -> None:
    append(file, b"1\n")
    append(file, b"2\n3\n")
    assert b"1\n2\n3\n" == file.path.read_bytes()


@pytest.mark.parametrize("tail", [b"torn", b"1\ntorn", b"\0\0\0"])
def test_a_torn_last_line_costs_only_itself(file: CaptureFile, tail: bytes) -> None:
    file.path.write_bytes(tail)
    append(file, b"2\n")
    append(file, b"3\n")
    assert tail + b"\n2\n3\n" == file.path.read_bytes()


def test_a_tail_torn_by_another_process_between_two_appends_is_noticed(file: CaptureFile) -> None:
    append(file, b"1\n")
    with file.path.open("ab") as other:
        other.write(b"torn")
    append(file, b"2\n")
    assert b"1\ntorn\n2\n" == file.path.read_bytes()


def test_a_write_that_fails_half_way_is_cut_back(file: CaptureFile) -> None:
    append(file, b"1\n")
    with no_file_larger_than(10), pytest.raises(OSError, match="File too large"):
        append(file, b"a line that does not fit\n")
    assert (b"1\n", True) == (file.path.read_bytes(), file.restored)
    append(file, b"2\n")
    assert b"1\n2\n" == file.path.read_bytes()


def test_a_cut_leaves_the_tail_that_another_one_tore(file: CaptureFile) -> None:
    file.path.write_bytes(b"1\ntorn")
    with no_file_larger_than(10), pytest.raises(OSError, match="File too large"):
        append(file, b"a line that does not fit\n")
    assert b"1\ntorn" == file.path.read_bytes()
    append(file, b"2\n")
    assert b"1\ntorn\n2\n" == file.path.read_bytes()


def test_two_lines_fail_under_one_lock_and_the_third_is_whole(file: CaptureFile) -> None:
    file.lock()
    with no_file_larger_than(10):
        file.append(b"1\n")
        for _ in range(2):
            with pytest.raises(OSError, match="File too large"):
                file.append(b"a line that does not fit\n")
        file.append(b"2\n")
    file.unlock()
    assert b"1\n2\n" == file.path.read_bytes()


def test_a_file_that_cannot_be_cut_back_says_so(tmp_path: Path) -> None:
    (tmp_path / "full.capture.jsonl").symlink_to("/dev/full")
    file = CaptureFile(tmp_path, "full")
    with pytest.raises(OSError, match="No space"):
        append(file, b"1\n")
    file.close()
    assert not file.restored


def test_a_file_unlinked_is_made_anew(file: CaptureFile) -> None:
    append(file, b"1\n")
    file.path.unlink()
    append(file, b"2\n")
    append(file, b"3\n")
    assert b"2\n3\n" == file.path.read_bytes()


def test_a_file_replaced_is_opened_anew(file: CaptureFile) -> None:
    append(file, b"1\n")
    other = file.path.with_name("other")
    other.write_bytes(b"other")
    other.rename(file.path)
    append(file, b"2\n")
    assert b"other\n2\n" == file.path.read_bytes()


def test_a_file_truncated_is_appended_to_where_it_ends(file: CaptureFile) -> None:
    append(file, b"one\ntwo\n")
    os.truncate(file.path, 6)
    append(file, b"3\n")
    os.truncate(file.path, 0)
    append(file, b"4\n")
    assert b"4\n" == file.path.read_bytes()


def test_a_directory_removed_is_made_again(file: CaptureFile) -> None:
    append(file, b"1\n")
    file.path.unlink()
    file.path.parent.rmdir()
    append(file, b"2\n")
    assert b"2\n" == file.path.read_bytes()


def removals_told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "was removed while records" in record.getMessage()]


def test_a_directory_removed_under_its_files_is_told_once(file: CaptureFile, caplog: pytest.LogCaptureFixture) -> None:
    directory = file.path.parent
    other = CaptureFile(directory, "b")
    append(file, b"1\n")
    append(other, b"1\n")
    assert [] == removals_told(caplog)  # it was not there at first either
    for removals in (1, 2):
        shutil.rmtree(directory)
        append(file, b"2\n")
        append(other, b"2\n")
        told = removals_told(caplog)
        assert (removals, True) == (len(told), str(directory) in told[-1])
    other.close()


def test_a_directory_removed_is_told_by_who_comes_first(file: CaptureFile, caplog: pytest.LogCaptureFixture) -> None:
    directory = file.path.parent
    append(file, b"1\n")
    shutil.rmtree(directory)
    write_marker(directory, "b")
    append(file, b"2\n")
    assert 1 == len(removals_told(caplog))


def test_a_file_removed_for_its_rollout_to_be_run_again_is_no_news(
    file: CaptureFile, caplog: pytest.LogCaptureFixture
) -> None:
    append(file, b"1\n")
    CaptureStore(file.path.parent).clear("a")
    append(file, b"2\n")
    assert [] == caplog.records


def test_a_lock_that_somebody_holds_is_not_waited_for_unless_asked(file: CaptureFile) -> None:
    with file.path.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not file.try_lock()
        fcntl.flock(other, fcntl.LOCK_UN)
        assert file.try_lock()
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.unlock()
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_marker_is_an_empty_file_and_one_that_stands_is_left_alone(tmp_path: Path) -> None:
    directory = tmp_path / "captures"
    write_marker(directory, "a")
    write_marker(directory, "a")
    assert b"" == marker_path(directory, "a").read_bytes()
    assert ["a.capture.incomplete"] == os.listdir(directory)  # noqa: PTH208


@pytest.mark.parametrize("rollout_id", ["..", ".hidden", "-rf", "x" * 242, "a/b"])
def test_an_id_that_is_never_captured_gets_no_marker(tmp_path: Path, rollout_id: str) -> None:
    with pytest.raises(InvalidRolloutIdError):
        write_marker(tmp_path, rollout_id)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("length", [1, 236, 237, 241])
def test_every_id_that_is_captured_has_a_marker(tmp_path: Path, length: int) -> None:
    rollout_id = "r" * length
    assert (True, False) == (is_rollout_id(rollout_id), is_marked(tmp_path, rollout_id))
    write_marker(tmp_path, rollout_id)
    [name] = os.listdir(tmp_path)  # noqa: PTH208
    assert (True, rollout_id, None) == (is_marked(tmp_path, rollout_id), marked_id(name), captured_id(name))
    assert name == rollout_id + (".capture.incomplete" if length < 237 else ".capture.lost")


@pytest.mark.parametrize("name", ["a.capture.lost", ".capture.incomplete", "a b.capture.incomplete", "a"])
def test_other_names_mark_no_rollout(name: str) -> None:
    assert marked_id(name) is None


def synced_by(monkeypatch: pytest.MonkeyPatch, make: Callable[[], object]) -> set[str]:
    """The paths that were fsynced meanwhile."""
    synced = set()
    fsync = os.fsync

    def watched(fd: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{fd}"))  # noqa: PTH115
        fsync(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", watched)
        make()
    return synced


@pytest.mark.parametrize(
    "make",
    [
        CaptureStore,
        lambda path: CaptureFile(path, "a").close(),
        lambda path: write_marker(path, "a"),
        lambda path: Settings(observability_enabled=True, model_call_capture_dir=path).open_capture_dir(),
    ],
    ids=["store", "capture file", "marker", "settings"],
)
def test_each_directory_that_is_made_is_durable_in_the_one_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object]
) -> None:
    directory = tmp_path / "run" / "captures"
    assert {str(tmp_path), str(tmp_path / "run")} <= synced_by(monkeypatch, lambda: make(directory))
    assert synced_by(monkeypatch, lambda: make(directory)).isdisjoint({str(tmp_path), str(tmp_path / "run")})


def test_a_directory_that_cannot_be_made_durable_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(OSError, match="Input/output error"):
            make_directory(tmp_path / "run" / "captures")
    assert [] == list(tmp_path.iterdir())
    make_directory(tmp_path / "run" / "captures")
    assert (tmp_path / "run" / "captures").is_dir()


def test_no_directory_is_made_where_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "file" / "captures"):
        with pytest.raises(OSError, match=r"File exists|Not a directory"):
            make_directory(directory)
