"""Requests of the other dialects as chat requests."""

from __future__ import annotations

from typing import Any

import pytest

from otel_gym.errors import ConversionError
from otel_gym.staging import CaptureAdmission
from otel_gym.staging.backend import chat_request, worker_request
from otel_gym.staging.buffered import BufferedCall
from tests.staging.chat_answers import FULL
from tests.staging.sdks import streamed


def said(dialect: str, **request: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = chat_request(dialect, request)["messages"]
    return messages


USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
TEXT = {"type": "text", "text": "see"}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("hi", [USER]),
        ([{"role": "user", "content": "hi"}], [USER]),
        ([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}], [USER]),
        ([{"role": "developer", "content": "be brief"}], [{"role": "system", "content": "be brief"}]),
        (
            [{"role": "user", "content": [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
            ]}],
            [{"role": "user", "content": [TEXT, IMAGE]}],
        ),
        (
            [{"role": "user", "content": [{"type": "input_file", "file_data": "x", "filename": "n", "file_id": None}]}],
            [{"role": "user", "content": [{"type": "file", "file": {"file_data": "x", "filename": "n"}}]}],
        ),
        (
            [
                {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'},
                {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "x"},
                {"type": "function_call_output", "call_id": "c1", "output": "one"},
                {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]},
                {"type": "message", "role": "assistant", "content": "b"},
                {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "xx"},
                {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            ],
            [
                {
                    "role": "assistant",
                    "content": "a",
                    "reasoning_content": "hm",
                    "tool_calls": [
                        CALL,
                        {"id": "c2", "type": "function", "function": {"name": "patch", "arguments": '{"input": "x"}'}},
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "one"},
                {"role": "tool", "tool_call_id": "c2", "content": "2"},
                {"role": "assistant", "content": "b"},
                {"role": "assistant", "content": None, "refusal": "no"},
            ],
        ),
        (
            [
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'},
                {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'},
            ],
            [
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [CALL]},
            ],
        ),
    ],
)  # fmt: skip
def test_items_are_messages(given: Any, wanted: list[dict[str, Any]]) -> None:
    assert wanted == said("responses", input=given)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([{"role": "user", "content": "hi"}], [USER]),
        ([{"role": "user", "content": [{"type": "text", "text": "hi"}]}], [USER]),
        ([{"role": "user", "content": []}], [{"role": "user", "content": ""}]),
        (
            [{"role": "user", "content": [
                TEXT,
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                {"type": "image", "source": {"type": "url", "url": "http://i"}},
            ]}],
            [{"role": "user", "content": [TEXT, IMAGE, {"type": "image_url", "image_url": {"url": "http://i"}}]}],
        ),
        (
            [
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "redacted_thinking", "data": "xx"},
                    {"type": "text", "text": "a"},
                    {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
                    {"type": "tool_use", "id": "c2", "name": "f", "input": {"_raw": "{"}},
                ]},
                {"role": "user", "content": [
                    {"type": "text", "text": "hi"},
                    {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
                    {"type": "tool_result", "tool_use_id": "c2", "content": [TEXT]},
                    {"type": "tool_result", "tool_use_id": "c3"},
                ]},
                {"role": "assistant", "content": "b"},
            ],
            [
                {
                    "role": "assistant",
                    "content": "a",
                    "reasoning_content": "hm",
                    "tool_calls": [CALL, {**CALL, "id": "c2", "function": {"name": "f", "arguments": "{"}}],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "one"},
                {"role": "tool", "tool_call_id": "c2", "content": "see"},
                {"role": "tool", "tool_call_id": "c3", "content": ""},
                USER,
                {"role": "assistant", "content": "b"},
            ],
        ),
    ],
)  # fmt: skip
def test_blocks_are_messages(given: Any, wanted: list[dict[str, Any]]) -> None:
    assert wanted == said("messages", messages=given)


def test_what_is_said_before_all_is_the_system_s() -> None:
    system = [{"role": "system", "content": "be brief"}, USER]
    assert system == said("responses", instructions="be brief", input="hi")
    assert system == said("messages", system="be brief", messages=[USER])
    blocks = [{"type": "text", "text": "be"}, {"type": "text", "text": "brief"}]
    assert "be\nbrief" == said("messages", system=blocks, messages=[USER])[0]["content"]


def test_settings_of_a_response_have_their_names_in_chat() -> None:
    schema = {"name": "s", "schema": {}, "strict": True}
    request = {
        "model": "m",
        "input": "hi",
        "stream": True,
        "store": False,
        "max_output_tokens": 5,
        "temperature": 0.5,
        "top_p": None,
        "parallel_tool_calls": False,
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "json_schema", **schema}, "verbosity": "low"},
        "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": True}, {"type": "web_search"}],
        "tool_choice": "required",
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "previous_response_id": None,
        "top_k": 3,
    }
    assert {
        "model": "m",
        "max_completion_tokens": 5,
        "temperature": 0.5,
        "parallel_tool_calls": False,
        "top_k": 3,
        "messages": [USER],
        "tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {}}}],
        "tool_choice": "required",
        "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": schema},
        "verbosity": "low",
    } == chat_request("responses", request)


def test_settings_of_a_message_have_their_names_in_chat() -> None:
    request = {
        "model": "m",
        "messages": [USER],
        "stream": True,
        "max_tokens": 5,
        "stop_sequences": ["END"],
        "top_k": 3,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "metadata": {"user_id": "u"},
        "tools": [{"name": "f", "description": "d", "input_schema": {}}, {"type": "web_search_20250305", "name": "w"}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
    }
    schema = {"name": "output", "schema": {"type": "object"}, "strict": True}
    assert {
        "model": "m",
        "max_tokens": 5,
        "stop": ["END"],
        "top_k": 3,
        "messages": [USER],
        "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "response_format": {"type": "json_schema", "json_schema": schema},
    } == chat_request("messages", request)


RESPONSES: dict[str, Any] = {"input": "hi"}
MESSAGES: dict[str, Any] = {"messages": [USER]}


@pytest.mark.parametrize(
    ("dialect", "request_"),
    [
        ("chat", {"n": 2}),
        ("completions", {}),
        ("responses", {**RESPONSES, "previous_response_id": "resp_1"}),
        ("responses", {**RESPONSES, "conversation": "c"}),
        ("responses", {**RESPONSES, "tool_choice": {"type": "web_search"}}),
        ("responses", {"input": [{"type": "item_reference", "id": "x"}]}),
        ("responses", {"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}),
        ("responses", {"input": [{"role": "assistant", "content": [{"type": "input_image"}]}]}),
        ("responses", {"input": [5]}),
        ("responses", {"input": 5}),
        ("responses", {"input": [{"role": 5, "content": "x"}]}),
        ("responses", {**RESPONSES, "tools": [5]}),
        ("responses", {**RESPONSES, "tools": [{"type": "function"}]}),
        ("responses", {**RESPONSES, "text": "x"}),
        ("messages", {**MESSAGES, "mcp_servers": [{}]}),
        ("messages", {**MESSAGES, "previous_message_id": "msg_1"}),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "document"}]}]}),
        ("messages", {"messages": [{"role": "assistant", "content": [{"type": "server_tool_use"}]}]}),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}]}),
        ("messages", {"messages": [{"role": "user", "content": 5}]}),
        ("messages", {**MESSAGES, "system": [{"type": "text"}]}),
        ("messages", {**MESSAGES, "tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "x"}}),
    ],
)
def test_what_a_chat_backend_cannot_be_told_is_refused(dialect: str, request_: dict[str, Any]) -> None:
    with pytest.raises(ConversionError):
        chat_request(dialect, request_)


def test_a_worker_is_asked_for_a_whole_answer_with_its_tokens() -> None:
    child = CaptureAdmission(
        rollout_id="r",
        model_call_id="c2",
        parent_call_id="c",
        mode="token_in",
        prev_len=2,
        required_prefix_token_ids=[1, 2],
        parent_chain_hash="0" * 64,
    )
    chat = {"model": "m", "messages": [], "stream": True, "stream_options": {"include_usage": True}, "logprobs": False}
    asked = worker_request(chat, child)
    assert {
        "model": "m",
        "messages": [],
        "stream": False,
        "logprobs": True,
        "top_logprobs": 0,
        "return_tokens_as_token_ids": True,
        "required_prefix_token_ids": [1, 2],
    } == {key: value for key, value in asked.items() if key != "ng_capture"}
    assert child == CaptureAdmission.model_validate(asked["ng_capture"])
    root = CaptureAdmission(rollout_id="r", model_call_id="c", mode="text")
    assert "required_prefix_token_ids" not in worker_request(chat, root)
    assert {"stream": True, "logprobs": False} == {key: chat[key] for key in ("stream", "logprobs")}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [('{"input": "*** Begin"}', "*** Begin"), ("*** Begin", "*** Begin"), ('{"other": 1}', '{"other": 1}')],
)
def test_a_custom_tool_is_a_function_to_the_backend_and_custom_to_the_client(arguments: str, text: str) -> None:
    inner = {"type": "custom", "name": "patch", "format": {"type": "text"}}
    tools = [{"type": "namespace", "name": "edit", "description": "e", "tools": [inner]}]
    call = BufferedCall("responses", {"model": "m", "input": "hi", "tools": tools})
    assert ["edit__patch"] == [tool["function"]["name"] for tool in call.chat["tools"]]
    function = {"name": "edit__patch", "arguments": arguments}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    }
    answer = {**FULL, "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    item = streamed("responses", call.events(call.answer(answer))).output[0]
    assert ("custom_tool_call", "patch", "edit", text) == (item.type, item.name, item.namespace, item.input)
