"""Beyond the corpus (tests/conformance): several directories, odd files, what is shared and what is kept."""

from __future__ import annotations

import copy
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from otel_gym.errors import InvalidRolloutIdError
from otel_gym.rollouts import attach, attachment
from otel_gym.rollouts.attachment import CAPTURE_KEY
from tests.sample_records import capture, record

ROW = {"_ng_task_index": 4, "_ng_rollout_index": 0}


def observations(*call_ids: str, **invocation: Any) -> dict[str, Any]:
    references = [{"model_call_id": call_id} for call_id in call_ids]
    record = {"kind": "agent_invocation", "invocation_id": "main", "model_calls": references, **invocation}
    return {"source": "test", "records": [record]}


def codes(capture: dict[str, Any]) -> list[str]:
    return [gap["code"] for gap in capture.get("gaps", [])]


def test_calls_of_every_directory_are_attached(tmp_path: Path) -> None:
    first, second, third = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    records = [record(), record()]
    for directory, stored in zip((first, second), records, strict=True):
        directory.mkdir()
        capture(directory, "4-0", stored)
    third.mkdir()
    (third / "4-0.capture.incomplete").touch()
    found = attach(ROW, {"reward": 1.0}, [first, str(second), third])["ng_model_call_capture"]
    assert [stored["model_call_id"] for stored in records] == [call["model_call_id"] for call in found["calls"]]
    assert (2, ["model_call_capture_incomplete"]) == (found["metrics"]["num_calls"], codes(found))


def test_the_longest_id_is_incomplete_by_a_marker_of_another_name(tmp_path: Path) -> None:
    longest = "r" * 241
    capture(tmp_path, longest, record())
    row = {**ROW, "_ng_rollout_id": longest}
    for lost in (False, True):
        found = attach(row, {"reward": 1.0}, [tmp_path])["ng_model_call_capture"]
        assert (1, ["model_call_capture_incomplete"] * lost) == (found["metrics"]["num_calls"], codes(found))
        (tmp_path / f"{longest}.capture.lost").touch()


def test_what_was_given_is_not_changed(tmp_path: Path) -> None:
    stored = record()
    capture(tmp_path, "4-0", stored)
    result = {"reward": 1.0, "response": {"output": []}, "ng_agent_observations": observations(stored["model_call_id"])}
    row, before = dict(ROW), copy.deepcopy(result)
    attached = attach(row, result, [tmp_path])
    assert (ROW, before) == (row, result)
    assert attached["response"] is result["response"]
    assert {"reward", "response", *ROW, *attachment.ATTACHED_KEYS} == set(attached)


def test_a_row_without_an_id_gets_nothing_but_its_keys(tmp_path: Path) -> None:
    assert {"reward": 1.0, "_ng_task_index": 4} == attach({"_ng_task_index": 4}, {"reward": 1.0}, [tmp_path])


def test_an_id_that_no_rollout_may_have_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidRolloutIdError):
        attach(ROW | {"_ng_rollout_id": "../x"}, {}, [tmp_path])


@pytest.mark.parametrize("kind", ["directory", "pipe", "no permission"])
def test_a_file_that_cannot_be_read_is_a_gap_and_no_wait(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "4-0.capture.jsonl"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path)  # a loop: not even root can open it
    found = attach(ROW, {}, [tmp_path])["ng_model_call_capture"]
    assert ["model_call_capture_unreadable"] == codes(found)


def test_a_file_that_stays_locked_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachment, "LOCK_TIMEOUT_S", 0.05)
    with capture(tmp_path, "4-0", record()).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = attach(ROW, {}, [tmp_path])["ng_model_call_capture"]
    assert ["model_call_capture_unreadable"] == codes(found)


TWICE = {"model_call_id": "a" * 32}


@pytest.mark.parametrize(
    "records", [[{"latency_ms": -1.0}], [{"latency_ttft_ms": -0.5}], [TWICE, TWICE]], ids=["took", "first", "twice"]
)
def test_calls_that_make_no_trajectory_are_found_out(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    capture(tmp_path, "4-0", *(record(**fields) for fields in records))
    found = attach(ROW, {}, [tmp_path])
    assert [{"code": "trajectory_projection_failed", "detail": "ValidationError"}] == found[CAPTURE_KEY]["gaps"]
    assert "ng_trajectory" not in found


def test_if_no_trajectory_can_be_made_the_producers_and_the_payloads_stay(tmp_path: Path) -> None:
    capture(tmp_path, "4-0", record(latency_ms=-1.0))
    reported = {"task_id": "4", "rollout_id": "4-0", "turns": []}
    attached = attach(ROW, {"ng_trajectory": reported}, [tmp_path])
    found = attached["ng_model_call_capture"]
    assert reported is attached["ng_trajectory"]
    assert [{"code": "trajectory_projection_failed", "detail": "ValidationError"}] == found["gaps"]
    assert "request" in found["calls"][0]
    assert "ng_perf" not in attached


def test_requests_and_answers_are_in_the_trajectory_once_and_not_in_the_capture(tmp_path: Path) -> None:
    stored = record()
    capture(tmp_path, "4-0", stored)
    attached = attach(ROW, {}, [tmp_path])
    (call,) = attached["ng_trajectory"]["model_calls"]
    assert (stored["request"], stored["response"]) == (call["request"], call["response"])
    assert [] == [name for name in attachment.PAYLOAD_FIELDS if name in attached["ng_model_call_capture"]["calls"][0]]


def test_without_observability_there_is_no_perf(tmp_path: Path) -> None:
    stored = record()
    capture(tmp_path, "4-0", stored)
    result = {"ng_agent_observations": observations(stored["model_call_id"])}
    assert "ng_perf" not in attach(ROW, result, [tmp_path], observability_enabled=False)
    assert attach(ROW, result, [tmp_path], rollout_latency_ms=5)["ng_perf"]["total_latency_ms"] == 5


def test_the_codes_of_the_gaps_are_those_that_show_explains() -> None:
    from otel_gym.cli import capture_directory

    names = ("NO_RECORDS", "RECORDS_UNREADABLE", "INCOMPLETE", "UNREADABLE")
    assert [getattr(capture_directory, name) for name in names] == [getattr(attachment, name) for name in names]
