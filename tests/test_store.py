"""The directory of capture files, as a program of one's own uses it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from otel_gym_jsonl import CaptureStore
from otel_gym_jsonl.errors import CaptureWriteError, DamagedRecordError, InvalidRolloutIdError


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
