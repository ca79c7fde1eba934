from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_gym.rollouts import attach, call_table, rollout_table, without_evidence
from tests.sample_records import capture, record

ROLLOUT_FIELDS = [
    "rollout_id",
    "_ng_task_index",
    "_ng_rollout_index",
    "_ng_attempt_index",
    "_ng_rollout_id",
    "reward",
    "tokens_in",
    "tokens_out",
    "tokens_reasoning",
    "tokens_total",
    "cached_tokens",
    "latency_total_ms",
    "num_calls",
    "num_turns",
    "num_tool_calls",
    "token_observability_coverage",
    "prompt_tokens",
    "cached_prompt_tokens",
    "completion_tokens",
    "reasoning_tokens",
    "total_latency_ms",
    "gaps",
]
CALL_FIELDS = [
    "rollout_id",
    "call_index",
    "model_call_id",
    "response_id",
    "model_server",
    "model",
    "dialect",
    "status_code",
    "response_status",
    "finish_reason",
    "response_source",
    "error_category",
    "started_at",
    "completed_at",
    "tokens_in",
    "tokens_out",
    "tokens_reasoning",
    "tokens_total",
    "cached_tokens",
    "cache_creation_tokens",
    "latency_total_ms",
    "latency_ttft_ms",
    "tool_calls",
]
SECRET = "what the user said"


@pytest.fixture(params=["projected", "not projected"])
def row(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """An attached row that says the secret wherever a row can; one that failed has it in the calls too."""
    message = {"role": "assistant", "content": SECRET, "reasoning_content": SECRET}
    stored = record(
        request={"model": "m", "messages": [{"role": "user", "content": SECRET}]},
        response={"id": "r", "choices": [{"message": message}], "usage": {"prompt_tokens": 3}},
        latency_ms=5.0 if request.param == "projected" else -5.0,
    )
    torn = record(response=None, response_raw=SECRET, request=None, request_raw=SECRET, latency_ms=1.0)
    capture(tmp_path, "0-1", stored, torn)
    invocation = {
        "kind": "agent_invocation",
        "invocation_id": "main",
        "model_calls": [{"model_call_id": stored["model_call_id"]}],
        "conversation": [{"role": "user", "content": SECRET, "type": "message"}],
    }
    compaction = {"kind": "context_compaction", "invocation_id": "main", "summary": SECRET}
    observed = {"source": "s", "records": [invocation, compaction]}
    result = {"reward": 0.5, "response": {"output": SECRET}, "score": 2, "ng_agent_observations": observed}
    (tmp_path / "0-1.capture.incomplete").touch()
    return attach({"_ng_task_index": 0, "_ng_rollout_index": 1}, result, [tmp_path], rollout_latency_ms=9)


def test_a_rollout_table_has_exactly_these_fields(row: dict[str, Any]) -> None:
    (cells,) = rollout_table([row])
    assert ROLLOUT_FIELDS == list(cells)
    assert ("0-1", 0.5, 2, 3) == (cells["rollout_id"], cells["reward"], cells["num_calls"], cells["tokens_in"])
    assert cells["gaps"].startswith("model_call_capture_incomplete")


def test_a_call_table_has_exactly_these_fields(row: dict[str, Any]) -> None:
    first, second = call_table([row])
    assert CALL_FIELDS == list(first) == list(second)
    assert ("policy", "r", 3, 0) == (
        first["model_server"],
        first["response_id"],
        first["tokens_in"],
        first["tool_calls"],
    )


def test_no_table_says_what_was_sent_or_came(row: dict[str, Any]) -> None:
    assert SECRET in json.dumps(row["ng_model_call_capture"]) or SECRET in json.dumps(row["ng_trajectory"])
    assert SECRET not in json.dumps([*rollout_table([row]), *call_table([row])])


def test_further_columns_are_taken_where_they_are_scalars(row: dict[str, Any]) -> None:
    (cells,) = rollout_table([row], columns=["score", "response", "absent"])
    assert (2, None, None) == (cells["score"], cells["response"], cells["absent"])


def test_the_evidence_cannot_be_a_column(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="ng_trajectory cannot be a column"):
        list(rollout_table([row], columns=["ng_trajectory"]))


def test_an_aggregation_never_sees_the_evidence(row: dict[str, Any]) -> None:
    assert {"_ng_task_index", "_ng_rollout_index", "reward", "response", "score"} == set(without_evidence(row))


@pytest.mark.parametrize(
    "odd", [{}, {"ng_model_call_capture": 5, "ng_perf": "x"}, {"ng_model_call_capture": {"calls": 1}}]
)
def test_a_row_without_an_attachment_has_unknown_cells(odd: dict[str, Any]) -> None:
    (cells,) = rollout_table([odd])
    assert {"gaps": ""} == {key: value for key, value in cells.items() if value is not None}
    assert [] == list(call_table([odd]))
