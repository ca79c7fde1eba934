"""Nothing that a body may hold breaks the content attributes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from otel_gym import semconv
from otel_gym.dialects import DIALECTS, Dialect
from tests.dialects.exchanges import exchanges
from tests.dialects.telling import CHAT, answered, text, told


def test_an_answer_in_another_dialects_shape_is_told_all_the_same() -> None:
    response = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
    expected = [{"role": "assistant", "parts": [text("hi")], "finish_reason": "stop"}]
    for dialect in DIALECTS.values():
        assert expected == answered(dialect, response)


def test_a_call_without_readable_bodies_has_no_content() -> None:
    for dialect in DIALECTS.values():
        assert {} == dialect.content(None, None) == dialect.content({}, {"code": "quota"})


def test_halves_of_a_character_are_joined_or_replaced() -> None:
    call = {"id": "c\ud83d", "function": {"name": "f", "arguments": "\ud83d\ude80"}}
    request = {"messages": [{"role": "user\ud83d", "tool_calls": [call]}], "stop": ["\ud83d"]}
    assert told(CHAT, request) == {
        "gen_ai.request.stop_sequences": ("\ufffd",),
        "gen_ai.input.messages": [
            {
                "role": "user\ufffd",
                "parts": [{"type": "tool_call", "id": "c\ufffd", "name": "f", "arguments": "🚀"}],
            }
        ],
    }


def test_what_cannot_be_stored_costs_only_its_own_message() -> None:
    deep: Any = "deep"
    for _ in range(300):
        deep = [deep]
    request = {
        "messages": [
            {"role": "user", "content": "before"},
            {"role": "assistant", "content": [{"type": "odd", "deep": deep}]},
            {"role": "tool", "content": 10**30},
            {"role": "user", "content": "after"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": 10**30}}],
    }
    lost = [{"type": "generic", "generic_type": "unstorable"}]
    assert told(CHAT, request) == {
        "gen_ai.input.messages": [
            {"role": "user", "parts": [text("before")]},
            {"role": "assistant", "parts": lost},
            {"role": "tool", "parts": lost},
            {"role": "user", "parts": [text("after")]},
        ],
        "gen_ai.tool.definitions": [{"type": "function", "name": "f"}],
    }


WORDS = ["", "a", "\ud83d", "\ude80", "user", "assistant", "tool", "data:image/png;base64,AA==", "data:;base64", "{}"]
TYPES = [
    *("text", "input_text", "thinking", "reasoning", "image_url", "input_image", "image", "document", "file"),
    *("input_file", "input_audio", "tool_use", "tool_result", "server_tool_use", "web_search_tool_result"),
    *("function_call", "function_call_output", "custom_tool_call", "image_generation_call", "mcp_call", "message"),
    *("compaction", "function", "custom", "odd"),
]
KEYS = [
    *("type", "role", "name", "content", "text", "thinking", "summary", "source", "image_url", "url", "file", "data"),
    *("file_id", "file_data", "media_type", "input_audio", "format", "tool_calls", "function_call", "function", "id"),
    *("arguments", "input", "output", "call_id", "tool_use_id", "message", "reasoning", "refusal", "audio", "result"),
    *("encrypted_content", "generic_type", "output_format", "finish_reason", "input_schema", "custom", "transcript"),
]
SCALARS = st.sampled_from([None, True, 0, 10**30, 0.5, float("nan")]) | st.sampled_from(WORDS) | st.sampled_from(TYPES)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
        | st.builds(lambda kind, rest: {**rest, "type": kind}, st.sampled_from(TYPES), st.just({}))
    ),
    max_leaves=8,
)
TYPED = st.builds(
    lambda kind, rest: {**rest, "type": kind},
    st.sampled_from(TYPES),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5),
)
BODY = st.dictionaries(
    st.sampled_from(
        ["messages", "input", "instructions", "system", "tools", "functions", "stop", "choices", "output", "content"]
    ),
    VALUES | st.lists(TYPED | VALUES, max_size=3),
)


@given(st.sampled_from(list(DIALECTS.values())), BODY, BODY)
def test_whatever_the_bodies_hold_the_content_is_of_the_schema(
    dialect: Dialect, request: dict[str, Any], response: dict[str, Any]
) -> None:
    told(dialect, request, response)


def test_every_exchange_of_the_corpus_can_be_told() -> None:
    seen: set[str] = set()
    for exchange in exchanges():
        seen.update(told(exchange.dialect, exchange.request, exchange.response))
    assert seen >= {semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES}
