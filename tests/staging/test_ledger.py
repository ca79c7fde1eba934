"""Conversations through ledger, worker and sink: each call is known as the continuation of the one before."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from otel_gym.staging import CaptureAdmission, DirectorySink, RolloutTokenCapture, StagedCalls, VLLMCaptureAdapter
from otel_gym.staging import ledger as module
from otel_gym.staging.backend import ADMISSION
from otel_gym.staging.buffered import BufferedCall
from otel_gym.staging.fingerprints import continuation_fingerprint, continued_fingerprints, output_fingerprint
from otel_gym.staging.ledger import CallLedger
from otel_gym.staging.replay import COMMIT_COORDS, commit_of
from tests.staging.sdks import dump, streamed

DIALECTS = ("chat", "responses", "messages")


class Worker:
    """Generates two tokens a call, with a tool call and reasoning, and stages them."""

    def __init__(self, directory: Path) -> None:
        self._calls = StagedCalls(directory)
        self._capture = RolloutTokenCapture(DirectorySink(directory), lambda: 3, VLLMCaptureAdapter())
        self._tokens = itertools.count(1000)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        admission = CaptureAdmission.model_validate(request[ADMISSION])
        prefix = self._calls.token_ids(admission.staging_chain)
        call = self._capture.begin_call(admission, prefix, stream=request["stream"])
        number = next(self._tokens)
        function = {"name": "look", "arguments": json.dumps({"n": number})}
        message = {
            "role": "assistant",
            "content": f"answer {number}",
            "reasoning_content": "hm",
            "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
            "generation_token_ids": [number, 7],
            "generation_log_probs": [-0.5, -0.25],
        }
        answer = {
            "id": f"chatcmpl-{number}",
            "model": "m",
            "prompt_token_ids": [*prefix, next(self._tokens)],
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": len(prefix) + 1, "completion_tokens": 2, "total_tokens": len(prefix) + 3},
        }
        coords = self._capture.complete_call_from_response(call, answer)
        return {**answer, COMMIT_COORDS: coords.model_dump(mode="json")}


def turn(dialect: str, history: list[Any], ledger: CallLedger, worker: Worker, call_id: str) -> tuple[str, list[Any]]:
    """One call as a server makes it; the mode that it was admitted in, and the history of the next one."""
    asked = {"responses": {"input": history}}.get(dialect, {"messages": history})
    call = BufferedCall(dialect, {"model": "m", "stream": True, **asked})
    admission = ledger.admit("r", call_id, call.messages)
    answer = worker.answer(call.worker_request(admission))
    commit = commit_of(answer, admission)
    assert commit.coords is not None
    client_answer = call.answer(answer)
    events = call.events(client_answer)
    message = answer["choices"][0]["message"]
    ledger.commit(admission, commit.coords, response_id=client_answer["id"], messages=call.messages, answer=message)
    return admission.mode, [*history, *continued(dialect, dump(streamed(dialect, events)))]


def continued(dialect: str, read: dict[str, Any]) -> list[dict[str, Any]]:
    """What a client adds to its history: the answer as the SDK gave it, and the result of the tool."""
    if dialect == "responses":
        call_id = next(item["call_id"] for item in read["output"] if item["type"] == "function_call")
        return [*read["output"], {"type": "function_call_output", "call_id": call_id, "output": "seen"}]
    if dialect == "messages":
        call_id = next(block["id"] for block in read["content"] if block["type"] == "tool_use")
        result = {"type": "tool_result", "tool_use_id": call_id, "content": "seen"}
        return [{"role": "assistant", "content": read["content"]}, {"role": "user", "content": [result]}]
    message = {key: value for key, value in read["choices"][0]["message"].items() if key != "reasoning_content"}
    return [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "seen"}]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_call_of_a_conversation_continues_the_one_before(dialect: str, tmp_path: Path) -> None:
    ledger, worker = CallLedger(), Worker(tmp_path)
    history: list[Any] = [{"role": "user", "content": "go"}]
    modes = []
    for number in range(4):
        mode, history = turn(dialect, history, ledger, worker, f"c{number}")
        modes.append(mode)
    assert ["text", "token_in", "token_in", "token_in"] == modes
    records = ledger.calls("r")
    assert [None, "c0", "c1", "c2"] == [record.parent_call_id for record in records]
    assert records[-1].cum_len == len(StagedCalls(tmp_path).token_ids(record.staging_key for record in records))


def test_a_branch_and_a_stranger_are_told_apart(tmp_path: Path) -> None:
    ledger, worker = CallLedger(), Worker(tmp_path)
    start: list[Any] = [{"role": "user", "content": "go"}]
    _, first = turn("chat", start, ledger, worker, "c0")
    turn("chat", first, ledger, worker, "c1")
    turn("chat", first, ledger, worker, "c2")
    turn("chat", [{"role": "user", "content": "a title, please"}], ledger, worker, "c3")
    turn("chat", [*first[:-1], {**first[-1], "content": "another result"}], ledger, worker, "c4")
    assert [None, "c0", "c0", None, "c0"] == [record.parent_call_id for record in ledger.calls("r")]


def test_a_rollout_is_forgotten_when_it_has_ended_or_many_came_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, worker = CallLedger(), Worker(tmp_path)
    _, history = turn("chat", [{"role": "user", "content": "go"}], ledger, worker, "c0")
    assert "token_in" == ledger.admit("r", "c1", history).mode
    assert "text" == ledger.admit("other", "c1", history).mode
    monkeypatch.setattr(module, "REMEMBERED", 1)
    ledger._rollouts["newer"] = []
    turn("chat", [{"role": "user", "content": "go"}], ledger, worker, "c2")
    assert (["r"], 2) == (list(ledger._rollouts), len(ledger.calls("r")))
    ledger.forget("r")
    assert ("text", []) == (ledger.admit("r", "c3", history).mode, ledger.calls("r"))


def test_a_failed_capture_is_no_row_of_a_ledger(tmp_path: Path) -> None:
    capture = RolloutTokenCapture(DirectorySink(tmp_path), lambda: 1)
    admission = CallLedger().admit("r", "c", [])
    coords = capture.fail_call(capture.begin_call(admission), "died")
    with pytest.raises(ValidationError):
        CallLedger().commit(admission, coords, response_id="x", messages=[], answer={})


def assistant(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "a", **fields}


def call(name: str, arguments: str, call_id: str = "c", **more: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments, **more}}


SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (assistant(), assistant(reasoning_content="hm")),
    (assistant(), assistant(content=[{"type": "text", "text": "a"}])),
    (assistant(content=None), assistant(content="")),
    (assistant(), assistant(content=None, refusal="a")),
    (assistant(tool_calls=[]), assistant()),
    (assistant(tool_calls=[call("f", "")]), assistant(tool_calls=[call("f", "{}", "other")])),
    (assistant(tool_calls=[call("f", '{"a":1,"b":2}')]), assistant(tool_calls=[call("f", '{"b": 2, "a": 1}')])),
    (assistant(tool_calls=[call("n__f", "{}")]), assistant(tool_calls=[call("f", "{}", namespace="n")])),
    (
        assistant(tool_calls=[call("f", '{"input": "x"}')]),
        assistant(tool_calls=[{"type": "custom", "custom": {"name": "f", "input": "x"}}]),
    ),
    (assistant(function_call={"name": "f", "arguments": "{}"}), assistant(tool_calls=[call("f", "{}")])),
]
OTHER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (assistant(), assistant(content="b")),
    (assistant(), {"role": "user", "content": "a"}),
    (assistant(), assistant(tool_calls=[call("f", "{}")])),
    (assistant(tool_calls=[call("f", "{}")]), assistant(tool_calls=[call("g", "{}")])),
    (assistant(tool_calls=[call("f", '{"a": 1}')]), assistant(tool_calls=[call("f", '{"a": 2}')])),
    (assistant(tool_calls=[call("f", "{")]), assistant(tool_calls=[call("f", "{}")])),
    (assistant(), assistant(content=[{"type": "text", "text": "a"}, {"type": "image_url"}])),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_clients_may_change_changes_no_fingerprint(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert output_fingerprint(one) == output_fingerprint(other)
    assert continuation_fingerprint([one], one) == continuation_fingerprint([other], other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_what_is_something_else_has_another_fingerprint(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert output_fingerprint(one) != output_fingerprint(other)
    assert continuation_fingerprint([one], one) != continuation_fingerprint([one], other)
    assert continuation_fingerprint([one], one) != continuation_fingerprint([other], one)


def test_every_earlier_answer_is_found_the_last_one_first() -> None:
    user, tool = {"role": "user", "content": "x"}, {"role": "tool", "content": "y"}
    messages = [user, assistant(content="1"), tool, assistant(content="2"), user]
    assert [
        continuation_fingerprint(messages[:3], messages[3]),
        continuation_fingerprint(messages[:1], messages[1]),
    ] == list(continued_fingerprints(messages))
