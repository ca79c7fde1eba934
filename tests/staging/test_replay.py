"""Answers and streams that a worker's chat answer becomes, as the real SDKs read them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic import APIStatusError
from hypothesis import given, settings
from openai import APIError

from otel_gym.dialects import DIALECTS
from otel_gym.errors import ConversionError
from otel_gym.sse import events
from otel_gym.staging.replay import INTERNAL_FIELDS, converted, failure_events, json_bytes, replayed
from otel_gym_jsonl import json_text
from otel_gym_jsonl.answers import reasoning_content, tool_calls
from otel_gym_jsonl.usage import token_counts
from tests.staging.chat_answers import FULL, chat_answers
from tests.staging.sdks import anthropic, dump, openai, streamed, whole

NAMES = ("chat", "responses", "messages")
REQUEST: dict[str, Any] = {"model": "m", "stream": True}


def by_name(name: str) -> Any:
    return next(dialect for dialect in DIALECTS.values() if dialect.name == name)


@pytest.mark.parametrize("dialect", NAMES)
def test_the_sdks_read_the_same_from_a_replay_as_without_streaming(dialect: str) -> None:
    answer = converted(dialect, FULL, REQUEST)
    assert dump(whole(dialect, answer)) == dump(streamed(dialect, replayed(dialect, answer, REQUEST)))


@pytest.mark.parametrize("dialect", NAMES)
@given(chat=chat_answers())
@settings(max_examples=25, deadline=None)
def test_any_answer_is_the_same_with_and_without_streaming(dialect: str, chat: dict[str, Any]) -> None:
    answer = converted(dialect, chat, REQUEST)
    assert dump(whole(dialect, answer)) == dump(streamed(dialect, replayed(dialect, answer, REQUEST)))


@pytest.mark.parametrize("dialect", NAMES)
@given(chat=chat_answers())
@settings(max_examples=25, deadline=None)
def test_no_text_tool_call_reasoning_or_usage_is_lost(dialect: str, chat: dict[str, Any]) -> None:
    answer = converted(dialect, chat, REQUEST)
    message = chat["choices"][0]["message"]
    read = READERS[dialect](streamed(dialect, replayed(dialect, answer, REQUEST)))
    assert (message["content"] or "") + (message.get("refusal") or "") == read["said"]
    assert (message.get("reasoning_content") or "") == read["reasoning"]
    assert [
        (call["id"], call["function"]["name"], comparable(dialect, call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    ] == [(call_id, name, comparable(dialect, arguments)) for call_id, name, arguments in read["calls"]]
    counts = token_counts(chat["usage"])
    if dialect == "messages":  # whose thinking tokens readers of captures do not take for reasoning tokens
        assert counts.reasoning == (answer["usage"].get("output_tokens_details") or {}).get("thinking_tokens")
        counts = counts._replace(reasoning=None)
    assert counts == token_counts(answer["usage"])


@pytest.mark.parametrize("dialect", NAMES)
@given(chat=chat_answers())
@settings(max_examples=25, deadline=None)
def test_a_capture_of_the_stream_has_the_answer(dialect: str, chat: dict[str, Any]) -> None:
    answer = converted(dialect, chat, REQUEST)
    stream = b"".join(replayed(dialect, answer, REQUEST))
    assembly = by_name(dialect).assemble(events(stream))
    response = assembly.response
    assert response is not None
    assert ("incomplete" if answer.get("status") == "incomplete" else "complete") == assembly.terminal
    assert [as_stored(call) for call in tool_calls(answer)] == tool_calls(response)
    assert (reasoning_content(answer) or None) == (reasoning_content(response) or None)
    assert token_counts(answer["usage"]) == token_counts(response.get("usage"))


@pytest.mark.parametrize("dialect", NAMES)
@given(chat=chat_answers())
@settings(max_examples=25, deadline=None)
def test_no_internal_field_is_in_any_byte(dialect: str, chat: dict[str, Any]) -> None:
    for event in events(b"".join(replayed(dialect, converted(dialect, chat, REQUEST), REQUEST))):
        # A response's text has log probabilities by its schema: an empty list.
        assert keys(event.payload) & INTERNAL_FIELDS <= ({"logprobs"} if dialect == "responses" else set())
        assert b"logprobs" not in event.data.replace(b'"logprobs":[]', b"") or "logprobs" in str(chat)


# ---- by example


def test_a_worker_s_answer_as_a_response() -> None:
    response = converted("responses", FULL, {"model": "asked", "temperature": 0.5, "tools": [{"type": "function"}]})
    said = "Let me look. " * 700
    part = {"type": "output_text", "text": said, "annotations": [], "logprobs": []}
    fields = {"type": "function_call", "status": "completed"}
    assert [
        {
            "type": "reasoning",
            "id": "rs_7f3a",
            "summary": [{"type": "summary_text", "text": "The user wants é and 🎉."}],
            "status": "completed",
        },
        {"type": "message", "id": "msg_7f3a", "role": "assistant", "status": "completed", "content": [part]},
        {**fields, "id": "fc_7f3a_0", "call_id": "call_1", "name": "find", "arguments": '{"q": "x"}'},
        {**fields, "id": "fc_7f3a_1", "call_id": "call_2", "name": "stop", "arguments": ""},
    ] == response["output"]
    assert {
        "input_tokens": 20,
        "output_tokens": 9,
        "total_tokens": 29,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 3},
    } == response["usage"]
    assert ("resp_7f3a", "completed", "policy", 0.5, [{"type": "function"}], 1764000001) == (
        *(response[key] for key in ("id", "status", "model", "temperature", "tools", "created_at")),
    )


def test_a_worker_s_answer_as_a_message() -> None:
    assert {
        "id": "msg_7f3a",
        "type": "message",
        "role": "assistant",
        "model": "policy",
        "content": [
            {"type": "thinking", "thinking": "The user wants é and 🎉.", "signature": ""},
            {"type": "text", "text": "Let me look. " * 700},
            {"type": "tool_use", "id": "call_1", "name": "find", "input": {"q": "x"}},
            {"type": "tool_use", "id": "call_2", "name": "stop", "input": {}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 16,
            "cache_read_input_tokens": 4,
            "output_tokens": 9,
            "output_tokens_details": {"thinking_tokens": 3},
        },
    } == converted("messages", FULL, REQUEST)


def answer(finish: str = "stop", *, choice: dict[str, Any] | None = None, **message: Any) -> dict[str, Any]:
    only = {"index": 0, "message": {"role": "assistant", "content": "hi", **message}, "finish_reason": finish}
    return {**FULL, "choices": [{**only, **(choice or {})}]}


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CUSTOM = {"id": "c", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}


@pytest.mark.parametrize(
    ("chat", "stop_reason", "status"),
    [
        (answer("stop"), "end_turn", "completed"),
        (answer("length"), "max_tokens", "incomplete"),
        (answer("content_filter"), "refusal", "incomplete"),
        (answer("tool_calls", tool_calls=[CALL]), "tool_use", "completed"),
        (answer("stop", tool_calls=[CALL]), "tool_use", "completed"),
        (answer("function_call", function_call=CALL["function"]), "tool_use", "completed"),
        (answer("length", tool_calls=[CALL]), "max_tokens", "incomplete"),
        (answer("stop", refusal="no"), "refusal", "completed"),
        (answer("stop", choice={"stop_reason": "END"}), "stop_sequence", "completed"),
        (answer("stop", choice={"stop_reason": "other"}), "end_turn", "completed"),
        (answer("stop", choice={"stop_reason": 151645}), "end_turn", "completed"),
    ],
)
def test_why_an_answer_ended(chat: dict[str, Any], stop_reason: str, status: str) -> None:
    message = converted("messages", chat, {"stop_sequences": ["END"]})
    assert (stop_reason, "END" if stop_reason == "stop_sequence" else None) == (
        message["stop_reason"],
        message["stop_sequence"],
    )
    assert status == converted("responses", chat, {})["status"]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ('{"a": "\\ud800"}', {"a": "\ufffd"}),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('{"a": NaN}', {"_raw": '{"a": NaN}'}),
        ("[1]", {"_raw": "[1]"}),
        (" ", {}),
        ('{"a": 18446744073709551616}', {"a": 2**64}),
    ],
)
def test_odd_arguments_are_an_object_in_a_message(arguments: str, wanted: dict[str, Any]) -> None:
    chat = answer(tool_calls=[{"id": "c", "function": {"name": "f", "arguments": arguments}}])
    message = converted("messages", chat, REQUEST)
    read = streamed("messages", replayed("messages", message, REQUEST))
    assert (wanted, wanted) == (message["content"][-1]["input"], read.content[-1].input)


def test_a_custom_tool_s_call_is_one_in_a_response() -> None:
    response = converted("responses", answer(content=None, tool_calls=[CUSTOM]), REQUEST)
    read = streamed("responses", replayed("responses", response, REQUEST))
    assert [("custom_tool_call", "patch", "*** Begin", "c")] == [
        (item.type, item.name, item.input, item.call_id) for item in read.output
    ]


def test_annotations_reach_a_client_of_responses() -> None:
    note = {"start_index": 0, "end_index": 2, "title": "t", "url": "http://u"}
    chat = answer(annotations=[{"type": "url_citation", "url_citation": note}])
    response = converted("responses", chat, REQUEST)
    read = streamed("responses", replayed("responses", response, REQUEST))
    assert {"type": "url_citation", **note} == read.output[0].content[0].annotations[0].to_dict()


def test_parts_of_a_content_are_text_and_thoughts() -> None:
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    message = converted("messages", answer(content=parts), REQUEST)
    assert [("thinking", "hm"), ("text", "ab")] == [
        (block["type"], block.get("thinking") or block.get("text")) for block in message["content"]
    ]


@pytest.mark.parametrize(
    ("chat", "dialects"),
    [
        ({**FULL, "choices": []}, NAMES),
        ({**FULL, "choices": FULL["choices"] * 2}, ("responses", "messages")),
        ({**FULL, "choices": [{"finish_reason": "stop"}]}, NAMES),
        ({**FULL, "choices": "x"}, NAMES),
        ({**FULL, "usage": 5}, ("responses", "messages")),
        (answer(audio={"id": "a"}), ("responses", "messages")),
        (answer(content=5), ("responses", "messages")),
        (answer(content=[{"type": "image"}]), ("responses", "messages")),
        (answer(tool_calls=[{"function": {"name": ""}}]), ("responses", "messages")),
        (answer(tool_calls=[{"function": {"name": "f", "arguments": {}}}]), ("responses", "messages")),
        (answer(tool_calls=["f"]), NAMES),
        (answer(tool_calls="f"), NAMES),
        (answer(tool_calls=[CUSTOM]), ("messages",)),
        (answer(content="x", extra=float("nan")), ("chat",)),
        (answer(content="x", extra=b"x"), ("chat",)),
    ],
)
def test_what_cannot_be_said_is_no_answer(chat: dict[str, Any], dialects: tuple[str, ...]) -> None:
    for dialect in dialects:
        with pytest.raises(ConversionError):
            replayed(dialect, converted(dialect, chat, REQUEST), REQUEST)


def test_an_answer_that_is_nested_too_deep_is_no_answer() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ConversionError, match="deep"):
        converted("chat", answer(extra=deep), REQUEST)


def test_there_is_no_other_dialect() -> None:
    with pytest.raises(ConversionError, match="dialect"):
        converted("completions", FULL, REQUEST)
    with pytest.raises(ConversionError, match="dialect"):
        replayed("completions", FULL, REQUEST)


@pytest.mark.parametrize("apart", [True, False])
def test_a_chat_client_gets_the_usage_as_it_asked_for_it(apart: bool) -> None:
    request = {"stream_options": {"include_usage": apart}}
    chunks = [event.payload for event in events(b"".join(replayed("chat", FULL, request)))][:-1]
    with_usage = [(len(chunk["choices"]), chunk["usage"]) for chunk in chunks if "usage" in chunk]
    assert [(0 if apart else 1, FULL["usage"])] == with_usage


def test_several_choices_stay_apart() -> None:
    first, second = answer(tool_calls=[CALL])["choices"][0], {**answer(content="ho")["choices"][0], "index": 1}
    chat = {**FULL, "choices": [first, second]}
    completion = streamed("chat", replayed("chat", converted("chat", chat, REQUEST), REQUEST))
    assert ["hi", "ho"] == [choice.message.content for choice in completion.choices]


def test_no_event_of_a_long_text_but_the_last_is_long() -> None:
    text = "é" * 100_000
    for dialect in NAMES:
        stream = replayed(dialect, converted(dialect, answer(content=text), REQUEST), REQUEST)
        long = [event for event in stream if len(event) > 20_000]
        # A response's done and completed events hold it all, as the API has it.
        assert len(long) == (4 if dialect == "responses" else 0)


# ---- failures


def test_a_failed_response_is_one_to_the_sdk() -> None:
    with openai(b"".join(failure_events("responses", "no answer", REQUEST, "resp_1"))).responses.stream(
        model="m", input="x"
    ) as stream:
        last: Any = list(stream)[-1]
    assert ("response.failed", "failed", "no answer") == (last.type, last.response.status, last.response.error.message)


def test_a_failed_chat_answer_raises_in_the_sdk() -> None:
    client = openai(b"".join(failure_events("chat", "no answer", REQUEST, "")))
    with pytest.raises(APIError, match="no answer"):
        list(client.chat.completions.create(model="m", messages=[], stream=True))


def test_a_failed_message_raises_in_the_sdk() -> None:
    client = anthropic(b"".join(failure_events("messages", "no answer", REQUEST, "")))
    with (
        pytest.raises(APIStatusError, match="no answer"),
        client.messages.stream(model="m", messages=[], max_tokens=1) as stream,
    ):
        stream.get_final_message()


@pytest.mark.parametrize("dialect", NAMES)
def test_a_failure_is_terminal_to_the_capture(dialect: str) -> None:
    stream = b"".join(failure_events(dialect, "no answer", REQUEST, "resp_1"))
    assert "error" == by_name(dialect).assemble(events(stream)).terminal


def as_stored(call: dict[str, Any]) -> dict[str, Any]:
    """A record holds no integers beyond 64 bits: arguments with one stand there as text."""
    try:
        json_text.dumps(call)
    except ValueError:
        return {**call, "arguments": {"_raw": json_bytes(call["arguments"]).decode()}}
    return call


def keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(keys, value.values()))
    return set().union(*map(keys, value)) if isinstance(value, list) else set()


def comparable(dialect: str, arguments: str) -> Any:
    """Arguments as Messages has them: an object, what is none under `_raw`; the other dialects keep the text."""
    if dialect != "messages":
        return arguments
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments.replace("\\ud800", "�"))
        json.dumps(value, allow_nan=False)
    except ValueError:
        return {"_raw": arguments}
    return value if isinstance(value, dict) else {"_raw": arguments}


def read_chat(completion: Any) -> dict[str, Any]:
    message = completion.choices[0].message
    return {
        "said": (message.content or "") + (message.refusal or ""),
        "reasoning": getattr(message, "reasoning_content", None) or "",
        "calls": [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()],
    }


def read_responses(response: Any) -> dict[str, Any]:
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    thoughts = [part.text for item in response.output if item.type == "reasoning" for part in item.summary]
    calls = [item for item in response.output if item.type == "function_call"]
    return {
        "said": "".join(part.text if part.type == "output_text" else part.refusal for part in parts),
        "reasoning": "".join(thoughts),
        "calls": [(call.call_id, call.name, call.arguments) for call in calls],
    }


def read_messages(message: Any) -> dict[str, Any]:
    texts = [block.text for block in message.content if block.type == "text"]
    calls = [block for block in message.content if block.type == "tool_use"]
    return {
        "said": "".join(texts),
        "reasoning": "".join(block.thinking for block in message.content if block.type == "thinking"),
        "calls": [(call.id, call.name, json.dumps(call.input)) for call in calls],
    }


READERS = {"chat": read_chat, "responses": read_responses, "messages": read_messages}
