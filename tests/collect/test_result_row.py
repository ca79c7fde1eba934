from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_gym.collect.agent import Failure
from otel_gym.collect.result_row import bad_line_row, result_row
from tests.sample_records import capture, record

ROW: dict[str, Any] = {"_ng_task_index": 3, "_ng_rollout_index": 1, "prompt": "p"}


def made(answer: bytes | Failure, *directories: Path, **keys: Any) -> tuple[str, Failure | None]:
    row = result_row({**ROW, **keys}, answer, directories, latency_ms=5.0, tries=2)
    assert row.line.endswith(b"\n")
    assert 1 == row.line.count(b"\n")
    return row.line.decode()[:-1], row.failure


def test_a_result_keeps_every_byte_and_gets_the_keys_of_its_row() -> None:
    answer = b' {"reward": 1.50,\r\n "ids": [12345678901234567890123, NaN, 1e-7], "s": "\\u00e9\\n"}\n'
    expected = answer.decode().strip().replace("\r\n", "  ")
    keys = ',"_ng_task_index":3,"_ng_rollout_index":1,"_ng_attempt_index":2,"_ng_rollout_id":"x"}'
    assert (expected[:-1] + keys, None) == made(answer, _ng_rollout_id="x", _ng_attempt_index=2)


def test_keys_that_the_agent_gave_itself_are_those_of_the_row() -> None:
    assert '{"_ng_task_index": 3, "reward": 0,"_ng_rollout_index":1}' == made(b'{"_ng_task_index": 9, "reward": 0}')[0]


def test_what_was_captured_comes_after(tmp_path: Path) -> None:
    capture(tmp_path, "3-1", record(), record())
    line, _ = made(b'{"reward": 1}', tmp_path)
    assert ["reward", "_ng_task_index", "_ng_rollout_index", "ng_model_call_capture", "ng_trajectory"] == list(
        json.loads(line)
    )
    row = result_row(ROW, b"{}", [tmp_path], latency_ms=5.0, tries=1)
    assert row.capture is not None
    assert 2 == row.capture["metrics"]["num_calls"]


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"a"', b"\xff{}", b'{"a": "\xff"}', b"null", b'{"ng_error": "x"}'])
def test_an_answer_that_is_no_result_is_a_failure_without_a_reward(answer: bytes) -> None:
    line, failure = made(answer)
    assert failure is not None
    row = json.loads(line)
    assert {"_ng_task_index": 3, "_ng_rollout_index": 1} == {k: v for k, v in row.items() if k != "ng_error"}
    assert ("malformed", 200, 2) == (row["ng_error"]["code"], row["ng_error"]["status"], row["ng_error"]["tries"])


def test_a_failure_keeps_what_was_captured_until_then(tmp_path: Path) -> None:
    capture(tmp_path, "3-1", record())
    line, failure = made(Failure("timeout", "no result within 5 s"), tmp_path)
    row = json.loads(line)
    assert failure is not None
    assert {"code": "timeout", "message": "no result within 5 s", "tries": 2} == row["ng_error"]
    assert 1 == len(row["ng_model_call_capture"]["calls"])
    assert "reward" not in row


def test_a_line_of_the_input_without_a_run_has_its_row() -> None:
    error = json.loads(bad_line_row(4, "why").line)["ng_error"]
    assert {"code": "input_invalid", "message": "line 4 of the input, counted from 0: why", "line": 4} == error
