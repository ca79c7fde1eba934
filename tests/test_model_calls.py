from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from otel_gym_jsonl.answers import finish_reason, reasoning_content, tool_calls
from otel_gym_jsonl.errors import DamagedRecordError, InvalidRolloutIdError
from otel_gym_jsonl.metrics import ModelCallMetrics
from otel_gym_jsonl.model_calls import (
    ModelCallRecord,
    aggregate_model_call_metrics,
    iter_model_calls,
    read_available_model_call_records,
    read_model_call_records,
)
from otel_gym_jsonl.store import CaptureStore
from otel_gym_jsonl.usage import TokenCounts, token_counts
from tests.sample_records import capture, record, response

FIELDS = [
    "model_call_id",
    "response_id",
    "client_session_id",
    "call_index",
    "model_ref",
    "model",
    "dialect",
    "status_code",
    "response_status",
    "finish_reason",
    "upstream_attempted",
    "response_source",
    "upstream_status_code",
    "local_response_reason",
    "started_at",
    "completed_at",
    "tokens_in",
    "tokens_out",
    "tokens_reasoning",
    "tokens_total",
    "request",
    "response",
    "request_raw",
    "response_raw",
    "tool_calls",
    "reasoning_content",
    "cache_hit",
    "cached_tokens",
    "cache_creation_tokens",
    "error_category",
    "latency_total_ms",
    "latency_ttft_ms",
]


@pytest.fixture
def store(tmp_path: Path) -> CaptureStore:
    return CaptureStore(tmp_path)


def test_a_call_has_the_fields_of_the_reference_in_their_order() -> None:
    assert list(ModelCallRecord.from_record(record(), 0).model_dump()) == FIELDS


def test_a_call_is_its_record_laid_flat() -> None:
    stored = record(client_session_id="s-1", upstream_attempted=True, response_source="upstream")
    call = ModelCallRecord.from_record(stored, 4)
    known = {key: value for key, value in call.model_dump().items() if value is not None}
    assert known == {
        "model_call_id": stored["model_call_id"],
        "response_id": "chatcmpl-1",
        "client_session_id": "s-1",
        "call_index": 4,
        "model_ref": {"type": "responses_api_models", "name": "policy"},
        "model": "qwen3-coder-30b-a3b",
        "dialect": "chat",
        "status_code": 200,
        "finish_reason": "tool_calls",
        "upstream_attempted": True,
        "response_source": "upstream",
        "started_at": 1764000001.0,
        "completed_at": 1764000002.5,
        "tokens_in": 812,
        "tokens_out": 57,
        "tokens_total": 869,
        "request": stored["request"],
        "response": stored["response"],
        "tool_calls": [{"call_id": "call_1", "name": "run_shell", "arguments": {"cmd": "pytest -q"}}],
        "cache_hit": True,
        "cached_tokens": 768,
        "latency_total_ms": 1500.0,
        "latency_ttft_ms": 210.5,
    }


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        (None, TokenCounts()),
        ([1, 2], TokenCounts()),
        ({}, TokenCounts()),
        ({"input_tokens": 0, "output_tokens": 0}, TokenCounts(0, 0, None, 0)),
        ({"input_tokens": True, "prompt_tokens": 5, "output_tokens": -1}, TokenCounts(5)),
        ({"prompt_tokens": 5.0, "completion_tokens": "7"}, TokenCounts()),
        ({"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 13}, TokenCounts(5, 7, None, 13)),
        ({"total_tokens": 13}, TokenCounts(total=13)),
        (
            {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 100},
            TokenCounts(123, 4, None, 127, 20, 100),
        ),
        ({"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}, TokenCounts(cached=0, cache_creation=0)),
        ({"cache_read_input_tokens": 9}, TokenCounts(tokens_in=9, cached=9)),
        ({"output_tokens_details": {"reasoning_tokens": 6}, "reasoning_output_tokens": 5}, TokenCounts(reasoning=6)),
        ({"completion_tokens_details": None, "reasoning_output_tokens": 5}, TokenCounts(reasoning=5)),
        (
            {"prompt_tokens_details": {"cached_tokens": -1, "cached_input_tokens": 9}, "cached_input_tokens": 1},
            TokenCounts(cached=9),
        ),
        ({"input_tokens_details": [], "cached_input_tokens": 1}, TokenCounts(cached=1)),
    ],
)
def test_token_counts_are_real_counts_or_unknown(usage: Any, counts: TokenCounts) -> None:
    assert counts == token_counts(usage)


def chat(*messages: Any) -> dict[str, Any]:
    return {"choices": [{"message": message} for message in messages]}


def with_arguments(arguments: Any) -> dict[str, Any]:
    return chat({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]})


@pytest.mark.parametrize(
    ("answer", "calls"),
    [
        ({}, []),
        (chat({"tool_calls": None}, None), []),
        (chat({"tool_calls": [{"id": "a"}, "no", None]}), [("a", None, {})]),
        (
            chat(
                {"tool_calls": [{"id": "a", "function": {"name": "f"}}]},
                {"tool_calls": [{"id": "b", "function": {"name": "g", "arguments": "{}"}}]},
            ),
            [("a", "f", {}), ("b", "g", {})],
        ),
        (
            {"output": [{"type": "function_call", "id": "fc", "name": "f", "arguments": '{"x":1}'}, 3]},
            [("fc", "f", {"x": 1})],
        ),
        ({"output": [], "choices": chat({"tool_calls": [{"id": "a"}]})["choices"]}, []),
        (
            {"content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1}}, {"type": "server_tool_use"}]},
            [("t", "f", {"x": 1})],
        ),
        ({"content": "text"}, []),
        (with_arguments('{"x":'), [("a", "f", {"_raw": '{"x":'})]),
        (with_arguments(""), [("a", "f", {"_raw": ""})]),
        (with_arguments("[1]"), [("a", "f", [1])]),
        (with_arguments("NaN"), [("a", "f", None)]),
        (with_arguments({"x": 1}), [("a", "f", {"x": 1})]),
        (with_arguments([2]), [("a", "f", {})]),
        # What no record can hold stays text, so that the call can be written to an attachment.
        (with_arguments("99999999999999999999"), [("a", "f", {"_raw": "99999999999999999999"})]),
        (with_arguments('"\\ud83d"'), [("a", "f", {"_raw": '"\\ud83d"'})]),
        (with_arguments("[" * 2000 + "]" * 2000), [("a", "f", {"_raw": "[" * 2000 + "]" * 2000})]),
        (with_arguments("[" * 99999), [("a", "f", {"_raw": "[" * 99999})]),
    ],
)
def test_tool_calls_of_every_response_shape(answer: dict[str, Any], calls: list[tuple[Any, Any, Any]]) -> None:
    assert calls == [(call["call_id"], call["name"], call["arguments"]) for call in tool_calls(answer)]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({}, None),
        (chat({"reasoning_content": "a", "reasoning": "b"}, {"reasoning": "c"}), "a\nc"),
        (chat({"reasoning_content": [{"text": "a"}]}), None),
        (
            {"output": [{"type": "reasoning", "summary": [{"text": "a"}, {"text": ""}, 3]}, {"type": "reasoning"}]},
            "a",
        ),
        ({"content": [{"type": "thinking", "thinking": "a"}, {"type": "redacted_thinking", "data": "x"}]}, "a"),
        ({"content": [{"type": "thinking", "thinking": "a"}, {"type": "thinking", "thinking": ""}]}, "a\n"),
    ],
)
def test_reasoning_of_every_response_shape(answer: dict[str, Any], text: str | None) -> None:
    assert text == reasoning_content(answer)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({}, None),
        ({"stop_reason": "end_turn", "choices": [{"finish_reason": "length"}]}, "end_turn"),
        ({"stop_reason": None, "choices": [{"finish_reason": "length"}]}, "length"),
        ({"choices": [], "incomplete_details": {"reason": "max_output_tokens"}}, "max_output_tokens"),
        ({"choices": [None], "incomplete_details": ["r"]}, None),
    ],
)
def test_the_finish_reason_is_the_first_that_is_given(answer: dict[str, Any], reason: str | None) -> None:
    assert reason == finish_reason(answer)


@pytest.mark.parametrize(
    ("stored", "field", "value"),
    [
        # divergence 3: 0, 1 and texts are no bools; a source that is neither is unknown
        ({"upstream_attempted": 1}, "upstream_attempted", None),
        ({"upstream_attempted": "yes"}, "upstream_attempted", None),
        ({"response_source": "cache"}, "response_source", None),
        ({"response_source": ["local"]}, "response_source", None),
        ({"upstream_status_code": True}, "upstream_status_code", None),
        ({"upstream_status_code": "502"}, "upstream_status_code", None),
        ({"local_response_reason": 5}, "local_response_reason", None),
        ({"upstream_attempted": False}, "upstream_attempted", False),
        # as the reference
        ({"client_session_id": 5}, "client_session_id", None),
        ({"status_code": "200"}, "status_code", 200),
        ({"latency_ms": "12.5"}, "latency_total_ms", 12.5),
        ({"request_raw": 5}, "request_raw", None),
        ({"request": "text"}, "request", None),
        ({"response": {"model": ""}}, "model", "qwen3-coder-30b-a3b"),
        ({"response": {"model": 5}}, "model", None),
        ({"response": {"id": 5}}, "response_id", None),
    ],
)
def test_a_field_of_another_type_is_unknown(stored: dict[str, Any], field: str, value: Any) -> None:
    assert value == getattr(ModelCallRecord.from_record(record(**stored), 0), field)


ODD = [
    ({"status_code": "abc"}, ValidationError, "status_code: "),
    ({"dialect": 5}, ValidationError, "dialect: "),
    ({"model_ref": {"type": "responses_api_models"}}, ValidationError, "model_ref.name: "),
    ({"response": {"choices": [{"message": {"tool_calls": 5}}]}}, TypeError, "a shape that no API has"),
    ({"response": {"output": [{"type": "reasoning", "summary": 7}]}}, TypeError, "a shape that no API has"),
]


@pytest.mark.parametrize(("stored", "cause", "reason"), ODD)
def test_a_record_that_gives_no_call_costs_only_itself(
    store: CaptureStore, stored: dict[str, Any], cause: type[Exception], reason: str
) -> None:
    capture(store.directory, "r0", record(), record(**stored), record())
    calls, invalid = read_available_model_call_records(store, "r0")
    assert ([0, 2], 1) == ([call.call_index for call in calls], invalid)
    with pytest.raises(DamagedRecordError) as caught:
        read_model_call_records(store, "r0")
    assert (2, cause) == (caught.value.line_number, type(caught.value.__cause__))
    assert reason in caught.value.reason
    with pytest.raises(DamagedRecordError):
        aggregate_model_call_metrics(store, "r0")


def test_a_line_that_is_no_object_gives_no_call(store: CaptureStore) -> None:
    capture(store.directory, "r0", b"[1]\n", b"{broken\n", record(), b"{}\n")
    calls, invalid = read_available_model_call_records(store, "r0")
    assert ([2, 3], 2) == ([call.call_index for call in calls], invalid)
    reasons = [
        call.reason for _, call in iter_model_calls(store.path_for("r0")) if isinstance(call, DamagedRecordError)
    ]
    assert "a JSON array where an object is expected" == reasons[0]


def test_totals_sum_what_is_known_and_count_every_call(store: CaptureStore) -> None:
    capture(
        store.directory,
        "r0",
        record(),
        record(response=response(usage=None), latency_ms=None),
        record(response=response(usage={"prompt_tokens": 3})),
    )
    assert aggregate_model_call_metrics(store, "r0") == {
        "tokens_in": 815,
        "tokens_out": 57,
        "tokens_reasoning": None,
        "tokens_total": 869,
        "cached_tokens": 768,
        "latency_total_ms": 3000.0,
        "num_calls": 3,
    }


def test_totals_of_nothing_are_unknown(store: CaptureStore) -> None:
    totals = aggregate_model_call_metrics(store, "r0")
    assert {**dict.fromkeys(totals), "num_calls": 0} == totals == ModelCallMetrics().totals()


def test_an_id_that_cannot_name_a_file_is_refused(store: CaptureStore) -> None:
    with pytest.raises(InvalidRolloutIdError):
        read_model_call_records(store, "../r0")


def test_a_call_can_be_written_as_json(store: CaptureStore) -> None:
    deep: Any = 1
    for _ in range(240):
        deep = [deep]
    capture(store.directory, "r0", record(response={"deep": deep}))
    [call] = read_model_call_records(store, "r0")
    assert {"deep": deep} == json.loads(json.dumps(call.model_dump()))["response"]
