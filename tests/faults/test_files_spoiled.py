"""Files and directories unlinked, replaced, truncated, made read-only while a server runs, and rights that end."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.faults.conftest import Start
from tests.faults.processes import Process, asked, eventually


def test_a_file_unlinked_between_calls_is_made_anew(start: Start) -> None:
    child = start()
    child.serve(asked("a", 1), asked("b", 1))
    child.store.path_for("a").unlink()
    child.serve(asked("a", 2), asked("b", 2))
    assert (["2"], ["1", "2"]) == (child.uniques("a"), child.uniques("b"))
    assert not child.is_marked("a")


def test_files_unlinked_and_replaced_under_load_lose_nothing_that_was_not_taken_away(start: Start) -> None:
    child = start()
    path = child.store.path_for("a")
    aside = 0
    for turn in range(15):
        calls = child.begin("calls", calls=[asked("a", turn * 10 + number) for number in range(10)])
        while not calls.done():
            if path.exists():
                path.rename(path.with_name(f"aside{aside}.capture.jsonl"))
                aside += 1
    uniques = [unique for number in range(aside) for unique in child.uniques(f"aside{number}")]
    if path.exists():
        uniques += child.uniques("a")
    assert [str(number) for number in range(150)] == sorted(uniques, key=int)
    assert [] == child.errors()


def test_a_file_replaced_by_another_is_appended_to(start: Start) -> None:
    child = start()
    child.serve(asked("a", 1))
    path = child.store.path_for("a")
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    copy.rename(path)
    child.serve(asked("a", 2))
    assert ["1", "2"] == child.uniques("a")


def test_a_file_truncated_in_a_line_keeps_what_comes_after(start: Start) -> None:
    child = start()
    child.serve(asked("a", 1))
    os.truncate(child.store.path_for("a"), 100)
    child.serve(asked("a", 2))
    records, damaged = child.store.read_available("a")
    assert (["2"], 1) == ([record["request"]["unique"] for _, record in records], damaged)


def test_a_directory_removed_is_made_again(start: Start) -> None:
    child = start()
    child.serve(asked("a", 1), asked("b", 1))
    shutil.rmtree(child.directory)
    child.serve(asked("a", 2), asked("c", 1))
    assert (["2"], [], ["1"]) == (child.uniques("a"), child.uniques("b"), child.uniques("c"))
    assert [] == child.errors()  # a warning, told once: tests/test_files.py


def nobody(start: Start, directory: Path) -> Process:
    child = start(directory)
    child.do("become_nobody")
    return child


def test_a_file_made_read_only_is_a_marked_loss(start: Start, open_directory: Path) -> None:
    child = nobody(start, open_directory)
    path = child.store.path_for("a")
    path.touch(0o444)
    child.serve(asked("a", 1), asked("b", 1))
    assert (True, ["1"], False) == (child.is_marked("a"), child.uniques("b"), child.is_marked("b"))
    path.chmod(0o666)
    child.serve(asked("a", 2))
    assert (["2"], 1) == (child.uniques("a"), len(child.errors()))


def test_a_file_that_is_open_already_is_written_on(start: Start, open_directory: Path) -> None:
    child = nobody(start, open_directory)
    child.serve(asked("a", 1))
    child.store.path_for("a").chmod(0o444)
    child.serve(asked("a", 2))
    assert (["1", "2"], []) == (child.uniques("a"), child.errors())


def test_a_name_that_is_a_directory_is_a_marked_loss(start: Start) -> None:
    child = start()
    child.store.path_for("a").mkdir()
    child.serve(asked("a", 1), asked("b", 1))
    assert (True, False, ["1"]) == (child.is_marked("a"), child.is_marked("b"), child.uniques("b"))


def test_the_marker_of_a_read_only_directory_is_owed_until_it_can_be_written(
    start: Start, open_directory: Path
) -> None:
    child = nobody(start, open_directory)
    child.serve(asked("a", 1))
    open_directory.chmod(0o555)
    child.serve(asked("a", 2), asked("new", 1))
    assert (["1", "2"], False) == (child.uniques("a"), child.is_marked("new"))
    open_directory.chmod(0o777)
    assert eventually(lambda: child.is_marked("new"))
    child.serve(asked("new", 2))
    assert (["2"], False) == (child.uniques("new"), child.is_marked("a"))


def test_a_marker_owed_is_written_before_the_process_ends(start: Start, open_directory: Path) -> None:
    child = nobody(start, open_directory)
    open_directory.chmod(0o555)
    child.serve(asked("a", 1))
    open_directory.chmod(0o777)
    assert 0 == child.leave()
    assert child.is_marked("a")


def test_a_marker_of_somebody_else_is_good_enough(start: Start, open_directory: Path) -> None:
    marker = open_directory / "a.capture.incomplete"
    marker.touch(0o444)
    child = nobody(start, open_directory)
    child.store.path_for("a").touch(0o444)
    child.serve(asked("a", 1))
    assert (1, True) == (len(child.errors()), child.is_marked("a"))


def test_a_record_that_does_not_fit_costs_only_itself_in_its_group(start: Start) -> None:
    child = start()
    child.serve(asked("a", 0))
    child.do("limit", what="RLIMIT_FSIZE", soft=child.store.path_for("a").stat().st_size + 8000)
    child.serve(*(asked("a", number, filler=20000 if number == 3 else 0) for number in range(1, 7)))
    child.do("limit", what="RLIMIT_FSIZE", soft=-1)
    child.serve(asked("a", 7))
    assert ["0", "1", "2", "4", "5", "6", "7"] == sorted(child.uniques("a"), key=int)
    assert (True, 1) == (child.is_marked("a"), len(child.errors()))
