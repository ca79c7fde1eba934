"""Compaction of the Responses API: a summary that the worker's model makes, and the item that stands for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gym.errors import ConversionError
from otel_gym.staging import CommitCoords
from otel_gym.staging.backend import chat_request
from otel_gym.staging.buffered import BufferedCall
from otel_gym.staging.compactions import REQUEST, compaction_item, summary_of
from otel_gym.staging.ledger import CallLedger
from tests.staging.chat_answers import FULL
from tests.staging.sdks import dump, streamed, whole

TRIGGER = {"type": "compaction_trigger"}
SUMMARY = compaction_item("Oslo is done.", "cmp_1")
EARLIER = compaction_item("Nothing yet.", "cmp_0")
TOOL = {"type": "function", "name": "f", "parameters": {}}
HISTORY: list[Any] = [
    {"role": "developer", "content": "be brief"},
    {"role": "user", "content": "Oslo?"},
    {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "717710"},
    {"role": "assistant", "content": "717710"},
]
KEPT = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "Oslo?"}]
NEXT = {"role": "user", "content": "and Bergen?"}


def said(message: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    return {**FULL, "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}]}


@pytest.mark.parametrize(
    "history",
    [
        [*HISTORY, SUMMARY, NEXT],
        [*HISTORY[:2], SUMMARY, NEXT],
        [*HISTORY[:2], {**SUMMARY, "type": "compaction_summary", "id": None}, NEXT],
        [HISTORY[0], EARLIER, *HISTORY[1:], SUMMARY, NEXT],
    ],
    ids=["all sent along", "as the API prunes it", "under the older name", "compacted before"],
)
def test_a_compaction_stands_for_all_before_it_but_what_users_said(history: list[Any]) -> None:
    messages = chat_request("responses", {"input": history})["messages"]
    assert [*KEPT, {"role": "assistant", "content": "Oslo is done."}, NEXT] == messages


def test_a_compaction_is_asked_for_with_the_tools_in_place_but_none_to_call() -> None:
    wanted = {"format": {"type": "json_schema", "name": "n", "schema": {}}}
    plain = {"model": "m", "input": HISTORY, "tools": [TOOL], "instructions": "i"}
    compacting = {**plain, "input": [*HISTORY, TRIGGER], "tool_choice": "required", "text": wanted}
    before, asked = chat_request("responses", plain), chat_request("responses", compacting)
    assert {
        **before,
        "messages": [*before["messages"], {"role": "user", "content": REQUEST}],
        "tool_choice": "none",
    } == (asked)


def test_the_context_is_not_compacted_unasked() -> None:
    request = {"model": "m", "input": "hi", "context_management": [{"type": "compaction", "compact_threshold": 1000}]}
    assert {"model": "m", "messages": [{"role": "user", "content": "hi"}]} == chat_request("responses", request)


@pytest.mark.parametrize(("finish", "status"), [("stop", "completed"), ("length", "incomplete")])
def test_the_sdk_reads_one_compaction_with_and_without_streaming(finish: str, status: str) -> None:
    call = BufferedCall("responses", {"model": "m", "stream": True, "input": [*HISTORY, TRIGGER]})
    answer = call.answer(said({"content": "Oslo is done.", "reasoning_content": "hm"}, finish))
    response = streamed("responses", call.events(answer))
    assert dump(whole("responses", answer)) == dump(response)
    (item,) = response.output
    assert ("compaction", "Oslo is done.", status) == (item.type, summary_of(item.to_dict()), response.status)
    kinds = [json.loads(event.split(b"data: ", 1)[1])["type"] for event in call.events(answer)]
    ends = f"response.{status}"
    assert [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.done",
        ends,
    ] == kinds


@pytest.mark.parametrize(
    "message",
    [
        {"content": None},
        {"content": ""},
        {"content": None, "refusal": "no"},
        {"content": "x", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    ],
)
def test_an_answer_that_is_no_summary_is_no_compaction(message: dict[str, Any]) -> None:
    call = BufferedCall("responses", {"model": "m", "input": [*HISTORY, TRIGGER]})
    with pytest.raises(ConversionError):
        call.answer(said(message))


@pytest.mark.parametrize(
    "history",
    [
        [TRIGGER, NEXT],
        [{"type": "compaction", "id": "cmp", "encrypted_content": "gAAAAABpM0Yj"}, NEXT],
        [{**SUMMARY, "encrypted_content": f"{SUMMARY['encrypted_content']}?"}, NEXT],
        [{"type": "compaction"}, NEXT],
    ],
    ids=["not the last item", "of another server", "damaged", "empty"],
)
def test_what_cannot_be_read_is_refused_and_not_left_out(history: list[Any]) -> None:
    with pytest.raises(ConversionError):
        chat_request("responses", {"input": history})


@given(st.text(st.characters(codec="utf-8")))
@settings(max_examples=50, deadline=None)
def test_any_summary_comes_back(summary: str) -> None:
    assert summary == summary_of(json.loads(json.dumps(compaction_item(summary, "cmp"))))


def test_the_summary_continues_the_conversation_and_what_follows_begins_a_chain_of_its_own() -> None:
    ledger, message = CallLedger(), {"role": "assistant", "content": "717710"}

    def admitted(history: list[Any], answer: dict[str, Any]) -> str | None:
        messages = BufferedCall("responses", {"input": history}).messages
        admission = ledger.admit("r", f"c{len(ledger.calls('r'))}", messages)
        coords = CommitCoords.model_validate(
            {name: getattr(admission, name) for name in ("rollout_id", "model_call_id", "parent_call_id", "prev_len")}
            | {"delta_len": 4, "cum_len": admission.prev_len + 4, "weight_version": 1, "disposition": "staged"}
            | {"staging_key": f"r/{admission.model_call_id}"}
            | dict.fromkeys(("digest", "extras_digest", "chain_hash", "cumulative_hash"), "0" * 64)
        )
        ledger.commit(admission, coords, response_id="resp", messages=messages, answer=answer)
        return admission.parent_call_id

    summary = {"role": "assistant", "content": "Oslo is done."}
    parents = [
        admitted(HISTORY[:-1], message),
        admitted([*HISTORY, TRIGGER], summary),
        admitted([*HISTORY, SUMMARY, NEXT], {"role": "assistant", "content": "291940"}),
        admitted([*HISTORY, SUMMARY, NEXT, {"role": "assistant", "content": "291940"}, NEXT], message),
    ]
    assert [None, "c0", None, "c2"] == parents
