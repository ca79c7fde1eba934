"""What a span says of requests and answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym import semconv
from otel_gym.dialects import DIALECTS, Dialect
from otel_gym_jsonl import ModelCallRecord
from tests.dialects.exchanges import exchanges

CHAT, MESSAGES, RESPONSES = (DIALECTS[path] for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"))
OPERATION = {"gen_ai.operation.name": "chat"}
OF_EVERY_CALL = {
    "chat": OPERATION | {"openai.api.type": "chat_completions"},
    "messages": OPERATION,
    "responses": OPERATION | {"openai.api.type": "responses"},
}

WORDS = st.sampled_from(["low", "\ud83d", "\ude80 x", "m" * 300, "stop", "completed", "function_call", ""])
SCALARS = st.sampled_from([None, True, False, 0, -1, 7, 2**63, 10**400, 0.5, float("nan"), float("inf")]) | WORDS
OBJECTS = st.dictionaries(st.sampled_from(["effort", "id", "reason", "type", "finish_reason"]), SCALARS, max_size=3)
JSON = SCALARS | OBJECTS | st.lists(SCALARS | OBJECTS, max_size=3)


def said(dialect: Dialect, request: dict[str, Any]) -> dict[str, Any]:
    """What the request says beyond what is true of every call of the dialect."""
    facts = dialect.request_facts(request)
    of_every_call = OF_EVERY_CALL[dialect.name]
    assert of_every_call == {name: facts.pop(name) for name in of_every_call}
    return facts


def test_a_chat_request_tells_how_it_is_sampled() -> None:
    request = {
        "model": "gpt-4.1",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 1,
        "top_p": 0.9,
        "top_k": 40,
        "max_completion_tokens": 100,
        "max_tokens": 50,
        "frequency_penalty": 0.1,
        "presence_penalty": -0.1,
        "stop": ["END"],
        "seed": 7,
        "n": 3,
        "stream": True,
        "reasoning_effort": "high",
    }
    assert said(CHAT, request) == {
        "gen_ai.request.model": "gpt-4.1",
        "gen_ai.request.temperature": 1.0,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.top_k": 40,
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.frequency_penalty": 0.1,
        "gen_ai.request.presence_penalty": -0.1,
        "gen_ai.request.seed": 7,
        "gen_ai.request.choice.count": 3,
        "gen_ai.request.stream": True,
        "gen_ai.request.reasoning.level": "high",
    }


def test_a_messages_request_tells_how_it_is_sampled() -> None:
    request = {
        "model": "claude",
        "max_tokens": 1024,
        "temperature": 0.5,
        "top_k": 5,
        "stop_sequences": ["END"],
        "stream": False,
        "thinking": {"type": "enabled", "budget_tokens": 4096},
        "output_config": {"effort": "low"},
    }
    assert said(MESSAGES, request) == {
        "gen_ai.request.model": "claude",
        "gen_ai.request.max_tokens": 1024,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_k": 5,
        "gen_ai.request.reasoning.level": "low",
    }


def test_a_responses_request_tells_what_it_goes_on_from() -> None:
    request = {
        "model": "m",
        "max_output_tokens": 9,
        "reasoning": {"effort": "minimal", "summary": "auto"},
        "previous_response_id": "resp_1",
        "conversation": {"id": "conv_1"},
    }
    assert said(RESPONSES, request) == {
        "gen_ai.request.model": "m",
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.reasoning.level": "minimal",
        "gen_ai.request.previous_response.id": "resp_1",
        "gen_ai.conversation.id": "conv_1",
    }


@pytest.mark.parametrize(
    ("dialect", "key", "value", "expected"),
    [
        (CHAT, "temperature", 0, {"gen_ai.request.temperature": 0.0}),
        (CHAT, "temperature", True, {}),
        (CHAT, "temperature", "0.5", {}),
        (CHAT, "temperature", float("nan"), {}),
        (CHAT, "temperature", float("inf"), {}),
        (CHAT, "temperature", 10**400, {}),
        (CHAT, "top_k", 40.5, {}),
        (CHAT, "top_k", 40.0, {"gen_ai.request.top_k": 40}),
        (CHAT, "max_tokens", 64.0, {"gen_ai.request.max_tokens": 64}),
        (CHAT, "n", 2.0, {"gen_ai.request.choice.count": 2}),
        (CHAT, "n", 1.0, {}),
        (CHAT, "seed", 1e19, {}),
        (CHAT, "seed", float("inf"), {}),
        (CHAT, "seed", float("nan"), {}),
        (CHAT, "top_k", -1, {"gen_ai.request.top_k": -1}),
        (CHAT, "seed", 2**63, {}),
        (CHAT, "seed", False, {}),
        (CHAT, "max_tokens", True, {}),
        (CHAT, "max_tokens", 0, {"gen_ai.request.max_tokens": 0}),
        (CHAT, "n", 1, {}),
        (CHAT, "n", True, {}),
        (CHAT, "n", 2, {"gen_ai.request.choice.count": 2}),
        (CHAT, "stream", False, {}),
        (CHAT, "stream", 1, {}),
        (CHAT, "model", "", {}),
        (CHAT, "model", ["m"], {}),
        (CHAT, "model", "m" * 300, {"gen_ai.request.model": "m" * 255}),
        (CHAT, "model", "m\ud83d", {"gen_ai.request.model": "m\ufffd"}),
        (CHAT, "reasoning_effort", "as much as you like, Ann", {}),
        (CHAT, "reasoning_effort", 3, {}),
        (CHAT, "reasoning", {"effort": "xhigh"}, {"gen_ai.request.reasoning.level": "xhigh"}),
        (CHAT, "reasoning", {"max_tokens": 100}, {}),
        (CHAT, "previous_response_id", "resp_1", {}),
        (MESSAGES, "thinking", {"type": "enabled", "budget_tokens": 1024}, {}),
        (MESSAGES, "n", 2, {}),
        (RESPONSES, "conversation", "conv_1", {"gen_ai.conversation.id": "conv_1"}),
        (RESPONSES, "conversation", {"id": 5}, {}),
        (RESPONSES, "previous_response_id", None, {}),
    ],
)
def test_only_what_is_of_its_type_is_said(dialect: Dialect, key: str, value: Any, expected: dict[str, Any]) -> None:
    facts = said(dialect, {key: value})
    assert expected == facts
    assert {name: type(fact) for name, fact in expected.items()} == {name: type(fact) for name, fact in facts.items()}


def test_stop_sequences_are_content_and_no_fact() -> None:
    for dialect in DIALECTS.values():
        assert {} == said(dialect, {"stop": "END", "stop_sequences": ["END"]})


def test_a_completion_tells_why_each_choice_ended() -> None:
    response = {
        "id": "c1",
        "model": "gpt-4.1-2025",
        "choices": [{"finish_reason": "stop"}, {"finish_reason": None}, 5, {"finish_reason": "length"}],
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
    }
    assert CHAT.response_facts(response) == {
        "gen_ai.response.id": "c1",
        "gen_ai.response.model": "gpt-4.1-2025",
        "gen_ai.response.finish_reasons": ("stop", "length"),
        "gen_ai.usage.input_tokens": 9,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.reasoning.output_tokens": 2,
    }


def test_the_input_of_a_message_counts_what_came_from_and_went_into_the_cache() -> None:
    response = {
        "id": "msg_1",
        "model": "claude",
        "stop_reason": "end_turn",
        "usage": {
            "input_tokens": 10,
            "cache_read_input_tokens": 200,
            "cache_creation_input_tokens": 30,
            "output_tokens": 5,
        },
    }
    assert MESSAGES.response_facts(response) == {
        "gen_ai.response.id": "msg_1",
        "gen_ai.response.model": "claude",
        "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.usage.input_tokens": 240,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 200,
        "gen_ai.usage.cache_write.input_tokens": 30,
    }


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"status": "completed"}, ("stop",)),
        ({"status": "completed", "output": [{"type": "message"}, {"type": "function_call"}]}, ("tool_call",)),
        ({"status": "completed", "output": [{"type": "web_search_call"}, {"type": []}, 5]}, ("stop",)),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, ("max_output_tokens",)),
        ({"status": "completed", "incomplete_details": {"reason": "content_filter"}}, ("content_filter",)),
        ({"status": "failed", "incomplete_details": None}, ("error",)),
        ({"status": "cancelled"}, ("cancelled",)),
        ({"status": "in_progress"}, None),
        ({"status": ["completed"]}, None),
        ({}, None),
    ],
)
def test_a_response_tells_by_its_status_why_it_ended(status: dict[str, Any], expected: tuple[str, ...] | None) -> None:
    facts = RESPONSES.response_facts({"output": [], **status})
    assert expected == facts.get("gen_ai.response.finish_reasons")


def test_a_response_tells_its_conversation() -> None:
    assert {"gen_ai.conversation.id": "conv_1"} == RESPONSES.response_facts({"conversation": {"id": "conv_1"}})


def test_an_answer_in_another_dialects_shape_is_read_by_its_own() -> None:
    response = {"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}
    for dialect in DIALECTS.values():
        facts = dialect.response_facts(response)
        assert (("stop",), 1) == (facts["gen_ai.response.finish_reasons"], facts["gen_ai.usage.input_tokens"])


def test_an_error_object_has_no_usage_and_no_finish_reason() -> None:
    for dialect in DIALECTS.values():
        assert {} == dialect.response_facts({"code": "daily_quota", "message": "try again tomorrow"})


@given(
    st.sampled_from(list(DIALECTS.values())),
    st.dictionaries(
        st.sampled_from(
            [
                "model",
                "temperature",
                "top_p",
                "top_k",
                "max_tokens",
                "max_output_tokens",
                "max_completion_tokens",
                "frequency_penalty",
                "presence_penalty",
                "seed",
                "n",
                "stream",
                "stop",
                "stop_sequences",
                "reasoning",
                "reasoning_effort",
                "thinking",
                "output_config",
                "conversation",
                "previous_response_id",
                "id",
                "choices",
                "output",
                "content",
                "status",
                "stop_reason",
                "incomplete_details",
                "usage",
            ]
        ),
        JSON,
    ),
)
def test_whatever_a_body_holds_the_facts_are_attributes_of_the_table(dialect: Dialect, body: dict[str, Any]) -> None:
    for facts in (dialect.request_facts(body), dialect.response_facts(body)):
        for name, value in facts.items():
            assert name in semconv.SPAN_ATTRIBUTES
            assert name not in semconv.CONTENT_ATTRIBUTES
            for item in value if isinstance(value, tuple) else [value]:
                assert type(item) in (str, int, float, bool)
                assert not isinstance(item, str) or (len(item) < 256 and item.encode())
                assert type(item) is not int or item.bit_length() < 64


COUNTS = {
    "tokens_in": "gen_ai.usage.input_tokens",
    "tokens_out": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_creation_tokens": "gen_ai.usage.cache_write.input_tokens",
    "tokens_reasoning": "gen_ai.usage.reasoning.output_tokens",
}


def test_the_counts_on_a_span_are_those_of_the_record() -> None:
    told = 0
    for exchange in exchanges():
        if exchange.response is None:
            continue
        call = ModelCallRecord.from_record({"request": exchange.request, "response": exchange.response}, 0)
        facts = exchange.dialect.response_facts(exchange.response)
        expected = {name: value for key, name in COUNTS.items() if (value := getattr(call, key)) is not None}
        assert expected == {name: facts[name] for name in COUNTS.values() if name in facts}, exchange.name
        if call.finish_reason:
            reasons = facts["gen_ai.response.finish_reasons"]
            assert isinstance(reasons, tuple)
            assert call.finish_reason in reasons, exchange.name
        told += len(expected)
    assert told > 300
