from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from otel_gym.errors import ConversionError
from otel_gym.staging.buffered import BufferedCall
from otel_gym.staging.fingerprints import continuation_fingerprint
from otel_gym.staging.namespaces import Namespaces
from tests.staging.chat_answers import FULL
from tests.staging.sdks import streamed

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"q": {"type": "string"}}}


def requests(named: bool) -> dict[str, dict[str, Any]]:
    """The same conversation in each dialect, its tools in a namespace or under their flat names."""
    name = {"name": "find", "namespace": "crm"} if named else {"name": "crm__find"}
    function = {"description": "d", "parameters": SCHEMA}
    chat_tool = {"type": "function", "function": {"name": "find" if named else "crm__find", **function}}
    responses_tool = {"type": "function", "name": "find" if named else "crm__find", **function}
    messages_tool = {"name": "find" if named else "crm__find", "description": "d", "input_schema": SCHEMA}
    plain = {"type": "function", "name": "a__b", "parameters": SCHEMA}
    call = {"id": "c1", "type": "function", "function": {**name, "arguments": '{"q": "x"}'}}
    item = {"type": "function_call", "call_id": "c1", **name, "arguments": '{"q":"x"}'}
    block = {"type": "tool_use", "id": "c1", **name, "input": {"q": "x"}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "none"}
    return {
        "chat": {
            "model": "m",
            "tools": [
                {"type": "namespace", "name": "crm", "tools": [chat_tool]} if named else chat_tool,
                {"type": "function", "function": {"name": "a__b", "parameters": SCHEMA}},
            ],
            "tool_choice": {"type": "function", "function": name},
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "none"},
            ],
        },
        "responses": {
            "model": "m",
            "tools": [
                {"type": "namespace", "name": "crm", "description": "x", "tools": [responses_tool]}
                if named
                else responses_tool,
                plain,
            ],
            "tool_choice": {"type": "function", **name},
            "input": [
                {"role": "user", "content": "hi"},
                item,
                {"type": "function_call_output", "call_id": "c1", "output": "none"},
            ],
        },
        "messages": {
            "model": "m",
            "tools": [
                {"type": "namespace", "name": "crm", "tools": [messages_tool]} if named else messages_tool,
                {"name": "a__b", "input_schema": SCHEMA},
            ],
            "tool_choice": {"type": "tool", **name},
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": [block]},
                {"role": "user", "content": [result]},
            ],
        },
    }


DIALECTS = ("chat", "responses", "messages")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_namespaced_request_is_the_flat_one_to_the_backend(dialect: str) -> None:
    named, flat = requests(named=True)[dialect], requests(named=False)[dialect]
    before = copy.deepcopy(named)
    assert flat == Namespaces().flattened(dialect, named)
    assert before == named
    assert BufferedCall(dialect, flat).chat == BufferedCall(dialect, named).chat


def test_the_backend_is_asked_the_same_in_every_dialect() -> None:
    asked = [BufferedCall(dialect, requests(named=True)[dialect]).chat for dialect in DIALECTS]
    for chat in asked:
        for message in chat["messages"]:
            for call in message.get("tool_calls", ()):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        chat["tools"][0]["function"].pop("description")
    assert asked[0] == asked[1] == asked[2]


def test_a_fingerprint_is_one_for_both_names_and_all_dialects() -> None:
    prints = {
        continuation_fingerprint(call.messages[:1], call.messages[1])
        for named in (True, False)
        for dialect in DIALECTS
        for call in [BufferedCall(dialect, requests(named)[dialect])]
    }
    raw = requests(named=True)["chat"]["messages"]  # as the client has it, its namespace beside the name
    assert {continuation_fingerprint(raw[:1], raw[1])} == prints


ANSWER: dict[str, Any] = {
    **FULL,
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "crm__find", "arguments": "{}"}},
                    {"id": "c2", "type": "function", "function": {"name": "a__b", "arguments": "{}"}},
                ],
            },
        }
    ],
}
RESTORED = [("find", "crm"), ("a__b", None)]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_client_gets_its_own_names_back(dialect: str) -> None:
    call = BufferedCall(dialect, requests(named=True)[dialect])
    read = streamed(dialect, call.events(call.answer(ANSWER)))
    if dialect == "chat":
        called = [found.function for found in read.choices[0].message.tool_calls]
    else:
        called = read.output if dialect == "responses" else read.content
    assert RESTORED == [(one.name, getattr(one, "namespace", None)) for one in called]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_client_without_namespaces_gets_flat_names(dialect: str) -> None:
    call = BufferedCall(dialect, requests(named=False)[dialect])
    assert "namespace" not in json.dumps(call.answer(ANSWER))


def test_a_legacy_function_call_is_restored_too() -> None:
    namespaces = Namespaces()
    namespaces.by_flat_name["crm__find"] = ("crm", "find")
    answer = {"choices": [{"message": {"function_call": {"name": "crm__find"}}}, "odd", {"message": None}]}
    assert [
        {"message": {"function_call": {"name": "find", "namespace": "crm"}}},
        "odd",
        {"message": None},
    ] == namespaces.restored(answer)["choices"]


def namespace(name: Any, *names: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "tools": [{"type": "function", "name": inner} for inner in names]}


@pytest.mark.parametrize(
    "tools",
    [
        [namespace("a", "b__c"), namespace("a__b", "c")],
        [namespace("a", "b"), {"type": "function", "name": "a__b"}],
        [{"type": "function", "name": "a__b"}, namespace("a", "b")],
        [namespace("", "b")],
        [namespace(5, "b")],
        [namespace("a", None)],
        [{"type": "namespace", "name": "a"}],
        [{"type": "namespace", "name": "a", "tools": ["x"]}],
    ],
)
def test_names_that_cannot_be_told_apart_are_refused(tools: list[Any]) -> None:
    with pytest.raises(ConversionError):
        Namespaces().flattened("responses", {"tools": tools})


def test_allowed_tools_are_flat_too_and_a_namespace_stands_for_all_of_its_tools() -> None:
    allowed = [{"type": "namespace", "name": "a"}, {"type": "function", "name": "d", "namespace": "c"}, "odd"]
    tools = [namespace("a", "b", "bb"), namespace("c", "d", "e")]
    choice = {"type": "allowed_tools", "mode": "required", "tools": allowed}
    flat = Namespaces().flattened("responses", {"tools": tools, "tool_choice": choice})
    assert ["a__b", "a__bb", "c__d"] == [tool["name"] for tool in flat["tool_choice"]["tools"] if tool != "odd"]
    chat = BufferedCall(
        "responses", {"tools": tools, "tool_choice": {**choice, "tools": allowed[:2]}, "input": "x"}
    ).chat
    assert ["a__b", "a__bb", "c__d"] == [tool["function"]["name"] for tool in chat["tools"]]
    assert "required" == chat["tool_choice"]
    inner = [{"type": "function", "function": {"name": "b"}}]
    request = {
        "tools": [{"type": "namespace", "name": "a", "tools": inner}],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "namespace", "name": "a"}]},
        },
    }
    found = Namespaces().flattened("chat", request)["tool_choice"]["allowed_tools"]["tools"]
    assert [{"type": "function", "function": {"name": "a__b"}}] == found
