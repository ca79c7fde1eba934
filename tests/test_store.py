"""The directory of capture files, as a program of one's own uses it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from otel_gym_jsonl import CaptureStore
from otel_gym_jsonl.errors import CaptureWriteError, DamagedRecordError, InvalidRolloutIdError

PATIENCE_S = 20.0


@pytest.fixture
def store(tmp_path: Path) -> CaptureStore:
    return CaptureStore(tmp_path / "captures")


def names(store: CaptureStore) -> list[str]:
    return sorted(path.name for path in store.directory.iterdir())


def test_what_is_appended_is_read_in_order(store: CaptureStore) -> None:
    for number in range(3):
        store.append("a", {"number": number})
    assert [{"number": 0}, {"number": 1}, {"number": 2}] == store.read("a")
    assert ([(0, {"number": 0}), (1, {"number": 1}), (2, {"number": 2})], 0) == store.read_available("a")
    assert b'{"number":0}\n{"number":1}\n{"number":2}\n' == store.path_for("a").read_bytes()


def test_a_rollout_without_a_file_reads_as_empty(store: CaptureStore) -> None:
    assert ([], ([], 0), False) == (store.read("a"), store.read_available("a"), store.is_incomplete("a"))


def test_a_damaged_line_stops_read_and_costs_read_available_only_itself(store: CaptureStore) -> None:
    store.append("a", {"number": 0})
    with store.path_for("a").open("ab") as file:
        file.write(b'{"number": 1')  # a writer was killed here
    store.append("a", {"number": 2})
    assert ([(0, {"number": 0}), (2, {"number": 2})], 1) == store.read_available("a")
    with pytest.raises(DamagedRecordError, match="line 2"):
        store.read("a")


@pytest.mark.parametrize("value", [10**30, "\ud800", b"bytes", {1, 2}])
def test_a_record_that_is_no_json_is_refused_and_leaves_nothing(store: CaptureStore, value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        store.append("a", {"value": value})
    assert [] == names(store)


def test_what_the_disk_refuses_is_an_error_and_leaves_a_marker(store: CaptureStore) -> None:
    store.path_for("a").mkdir()
    with pytest.raises(CaptureWriteError, match="'a'"):
        store.append("a", {})
    assert store.is_incomplete("a")


class RefusingDisk:
    """A rollout whose records and whose marker the system refuses, until it `heals`."""

    def __init__(self, store: CaptureStore, rollout_id: str) -> None:
        self.store = store
        self._marker = store.marker_for(rollout_id)
        self._marker.symlink_to(store.directory / "missing" / "marker")
        store.path_for(rollout_id).symlink_to("/dev/full")

    def heals(self) -> None:
        self._marker.unlink()

    @property
    def is_marked(self) -> bool:
        return self._marker.is_file()

    def waits_for_marker(self) -> bool:
        deadline = time.monotonic() + PATIENCE_S
        while not self.is_marked and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.is_marked


@pytest.fixture
def refused(store: CaptureStore) -> RefusingDisk:
    return RefusingDisk(store, "a")


def test_a_marker_that_the_disk_refuses_is_owed_until_it_stands(store: CaptureStore, refused: RefusingDisk) -> None:
    with pytest.raises(CaptureWriteError):
        store.append("a", {})
    assert not refused.is_marked
    refused.heals()
    assert refused.waits_for_marker()


def test_a_marker_that_is_owed_is_tried_again_with_every_append(
    store: CaptureStore, refused: RefusingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_gym_jsonl.markers.RETRY_SECONDS", 10 * PATIENCE_S)
    with pytest.raises(CaptureWriteError):
        store.append("a", {})
    assert not store.markers.wait(0.05)
    refused.heals()
    store.append("b", {})
    assert refused.waits_for_marker()


def test_a_marker_of_a_rollout_that_was_cleared_is_owed_no_more(store: CaptureStore, refused: RefusingDisk) -> None:
    with pytest.raises(CaptureWriteError):
        store.append("a", {})
    store.clear("a")
    store.append("b", {})
    assert store.markers.wait(PATIENCE_S)
    assert ["b.capture.jsonl"] == names(store)


REFUSED_AND_ENDING = """
import os, sys, threading
from otel_gym_jsonl import CaptureStore
store = CaptureStore(sys.argv[1])
try:
    store.append("a", {})
except OSError:
    if sys.argv[2] == "heals":
        os.unlink(store.marker_for("a"))
"""


@pytest.mark.parametrize(("disk", "marked"), [("heals", True), ("refuses", False)])
def test_a_process_that_ends_gives_what_it_owes_one_more_chance_and_is_not_held(
    store: CaptureStore, refused: RefusingDisk, disk: str, marked: bool
) -> None:
    command = [sys.executable, "-c", REFUSED_AND_ENDING, str(store.directory), disk]
    assert 0 == subprocess.run(command, timeout=PATIENCE_S, stderr=subprocess.DEVNULL, check=False).returncode
    assert marked == refused.is_marked


REFUSED_AND_FORKED = """
import contextlib, os, sys
from otel_gym_jsonl import CaptureStore
store = CaptureStore(sys.argv[1])
with contextlib.suppress(OSError):
    store.append("a", {})
if os.fork():
    _, status = os.wait()
    assert store.markers.owed == ["a"]
    sys.exit(os.waitstatus_to_exitcode(status))
assert store.markers.owed == []
with contextlib.suppress(OSError):
    store.append("b", {})
assert store.markers.owed == ["b"]
os.unlink(store.marker_for("b"))
assert store.markers.wait(20)
"""


def test_a_forked_child_owes_nothing_and_can_owe_its_own(store: CaptureStore, refused: RefusingDisk) -> None:
    other = RefusingDisk(store, "b")
    command = [sys.executable, "-W", "ignore", "-c", REFUSED_AND_FORKED, str(store.directory)]
    result = subprocess.run(command, timeout=PATIENCE_S, capture_output=True, text=True, check=False)
    assert (0, [True, False]) == (result.returncode, [other.is_marked, refused.is_marked]), result.stderr


@pytest.mark.parametrize("rollout_id", ["..", ".hidden", "-rf", "x" * 242])
def test_an_id_that_is_never_captured_is_not_written_and_what_others_wrote_of_it_is_read(
    store: CaptureStore, rollout_id: str
) -> None:
    with pytest.raises(InvalidRolloutIdError):
        store.append(rollout_id, {})
    assert [] == names(store)
    if len(rollout_id) < 242:
        store.path_for(rollout_id).write_bytes(b'{"of":"the reference"}\n')
        assert ([{"of": "the reference"}], [rollout_id]) == (store.read(rollout_id), list(store.rollout_ids()))
        store.clear(rollout_id)
        assert [] == names(store)


def test_a_loss_of_the_longest_id_is_marked_and_cleared(store: CaptureStore) -> None:
    longest = "r" * 241
    store.path_for(longest).symlink_to("/dev/full")
    with pytest.raises(CaptureWriteError):
        store.append(longest, {})
    assert store.is_incomplete(longest)
    store.clear(longest)
    assert [] == names(store)


@pytest.mark.parametrize("rollout_id", ["", "a/b", "a b", "é", "a\n", "..\0"])
def test_an_id_that_names_no_file_is_refused_everywhere(store: CaptureStore, rollout_id: str) -> None:
    store.append("a", {})
    for use in (
        lambda: store.append(rollout_id, {}),
        lambda: store.read(rollout_id),
        lambda: store.read_available(rollout_id),
        lambda: store.is_incomplete(rollout_id),
        lambda: store.clear(["a", rollout_id]),
    ):
        with pytest.raises(InvalidRolloutIdError):
            use()
    assert ["a.capture.jsonl"] == names(store)


def test_clear_removes_files_and_markers_of_exactly_these_rollouts(store: CaptureStore) -> None:
    for rollout_id in ("a", "a-a1", "b"):
        store.append(rollout_id, {})
        store.marker_for(rollout_id).touch()
    store.clear(["a", "b", "missing"])
    assert ["a-a1.capture.incomplete", "a-a1.capture.jsonl"] == names(store)
    store.clear("a-a1")
    assert [] == names(store)


def test_the_rollouts_are_those_whose_files_can_be_read(store: CaptureStore) -> None:
    for name in ("b.capture.jsonl", "a.capture.jsonl", "...capture.jsonl", ".capture.jsonl", "a b.capture.jsonl", "c"):
        (store.directory / name).touch()
    assert ["..", "a", "b"] == list(store.rollout_ids())


def test_a_directory_that_has_gone_is_empty_to_clear_and_made_again_by_append(store: CaptureStore) -> None:
    store.append("a", {})
    shutil.rmtree(store.directory)
    store.clear(["a"])
    assert not store.directory.exists()
    store.append("a", {"again": True})
    assert [{"again": True}] == store.read("a")


def test_a_relative_directory_is_refused() -> None:
    with pytest.raises(ValueError, match="'captures' is not absolute"):
        CaptureStore("captures")
