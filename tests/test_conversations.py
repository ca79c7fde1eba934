"""Chains of responses: which conversation a call goes on with, as its span says it."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from otel_gym import semconv, telling
from otel_gym.conversations import Conversations
from otel_gym.mirroring import receipt
from otel_gym.testing import ScriptedModel, answer, stream
from otel_gym_otlp.receipt import Receipt
from tests.mirrored import Mirrored, attributes


async def ask(
    mirrored: Mirrored, given: str | None, previous: str | None, rollout_id: str = "0-0", **more: Any
) -> None:
    """A call whose answer has this id (None: it has no answer), and which goes on from another."""
    body: dict[str, Any] = {"model": "m", "input": "hi", **more.pop("request", {})}
    if previous is not None:
        body["previous_response_id"] = previous
    whole = {**answer("responses", "hi"), "id": given, **more.pop("answered", {})}
    model = ScriptedModel.of({}, status=500) if given is None else ScriptedModel.of(whole)
    await mirrored.call(model, rollout_id, "responses", body=json.dumps(body).encode(), **more)


def said(mirrored: Mirrored, count: int) -> list[str | None]:
    """The conversation of each call, in the order of the calls: their spans may come in another."""
    spans = sorted(mirrored.spans(count), key=lambda span: span.start_time_unix_nano)
    return [attributes(span).get(semconv.CONVERSATION_ID) for span in spans]


async def test_a_chain_goes_by_the_response_that_it_began_with(mirrored: Mirrored) -> None:
    """What a call begins with is known once another goes on from it; one that stands alone is no conversation."""
    for given, previous in (("a", None), ("b", "a"), ("c", "b"), ("d", "b"), (None, "c"), ("e", None)):
        await ask(mirrored, given, previous)
    assert [None, "a", "a", "a", "a", None] == said(mirrored, 6)


async def test_a_chain_that_began_in_a_conversation_or_a_session_goes_on_there(mirrored: Mirrored) -> None:
    await ask(mirrored, "a", None, request={"conversation": "conv_1"})
    await ask(mirrored, "b", "a")
    await ask(mirrored, "c", None, answered={"conversation": {"id": "conv_2"}})
    await ask(mirrored, "d", "c")
    await ask(mirrored, "e", None, headers=[(b"x-session-id", b"s1")])
    await ask(mirrored, "f", "e", headers=[(b"session-id", b"of a sub-agent")])
    assert ["conv_1", "conv_1", "conv_2", "conv_2", "s1", "s1"] == said(mirrored, 6)


async def test_what_a_call_names_itself_comes_before_the_chain_that_led_to_it(mirrored: Mirrored) -> None:
    await ask(mirrored, "a", None)
    await ask(mirrored, "b", "a", request={"conversation": "conv_1"})
    await ask(mirrored, "c", "b")
    assert [None, "conv_1", "conv_1"] == said(mirrored, 3)


async def test_a_chain_whose_beginning_is_not_known_says_nothing(mirrored: Mirrored) -> None:
    await ask(mirrored, "b", "a")
    await ask(mirrored, "c", "b")
    await ask(mirrored, "d", "c", headers=[(b"x-session-id", b"s1")])
    assert [None, None, "s1"] == said(mirrored, 3)


async def test_equal_ids_of_two_rollouts_are_two_responses(mirrored: Mirrored) -> None:
    await ask(mirrored, "r1", None, "0-0", request={"conversation": "conv_1"})
    await ask(mirrored, "r1", None, "0-1")
    await ask(mirrored, "r2", "r1", "0-1")
    await ask(mirrored, "r2", "r1", "0-2")
    assert ["conv_1", None, "r1", None] == said(mirrored, 4)


async def test_a_streamed_answer_is_gone_on_from_as_any_other(mirrored: Mirrored) -> None:
    await mirrored.call(ScriptedModel(stream("responses", "a", "b")), dialect="responses")
    await ask(mirrored, "r2", "r1")
    assert [None, "r1"] == said(mirrored, 2)


def test_only_the_latest_responses_are_remembered() -> None:
    conversations = Conversations(most=2)
    for number in range(100):
        conversations.remember("0-0", {semconv.RESPONSE_ID: f"r{number}"})
    asked = [{semconv.REQUEST_PREVIOUS_RESPONSE_ID: f"r{number}"} for number in range(100)]
    known = [conversations.before("0-0", facts) for facts in asked]
    assert [None] * 98 + ["r98", "r99"] == known


async def test_who_is_told_late_of_a_call_learns_of_its_conversation_all_the_same(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows on a large record takes its time, and the next call of its rollout may be told of before."""
    go_on = threading.Event()

    def slow_receipt(rollout_id: str, line: bytes) -> Receipt:
        if b'"id":"first"' in line.replace(b" ", b""):
            assert go_on.wait(30)
        return receipt(rollout_id, line)

    monkeypatch.setattr(telling, "receipt", slow_receipt)
    await ask(mirrored, "first", None)
    await ask(mirrored, "second", "first")
    mirrored.spans(1)  # of the second
    go_on.set()
    assert [None, "first"] == said(mirrored, 2)
