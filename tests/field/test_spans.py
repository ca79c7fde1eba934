"""Faults that people met elsewhere, as a backend sees them: the spans of inputs 15, 24, 26, 27 of the field page.

Input 23 is that of `tests/test_span_facts.py`, 25 of `tests/servers/test_other_instrumentation.py`, 28 of
`tests/services/test_collector.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from otel_gym.testing import JSON, Application, Exchange, ScriptedModel, answer
from tests.field.capture import PATHS, delta, wire
from tests.field.test_processes import run
from tests.mirrored import FOREIGN, Mirrored, attributes
from tests.services.receiver import Receiver, http_receiver

CONTENT = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with http_receiver() as running:
        yield running


@pytest.fixture
def mirrored(tmp_path: Path, receiver: Receiver) -> Iterator[Mirrored]:
    made = Mirrored(tmp_path / "captures", receiver)
    yield made
    made.close()


def set_variables(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


async def calls_of(app: Application, count: int) -> None:
    """So many calls of rollout 0-0 one after the other: their spans are of one batch."""
    for _ in range(count):
        async with Exchange(app, f"/ng-rollout/0-0{PATHS['chat']}", b'{"model":"m","stream":true}') as call:
            await call.rest()


# ---- 15: half a character


async def test_15_half_a_character_costs_no_neighbour_its_span(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_variables(monkeypatch, **CONTENT)
    first, second, *rest = wire(15)[1]
    plays = iter([ScriptedModel([first, second, *rest]), ScriptedModel([first, *rest]), ScriptedModel([*rest])])

    async def each_in_turn(scope: Any, receive: Any, send: Any) -> None:
        await next(plays)(scope, receive, send)

    await calls_of(mirrored.app(each_in_turn), 3)
    said = {span.span_id.hex(): attributes(span)["gen_ai.output.messages"] for span in mirrored.spans(3)}
    whole, half, neighbour = (said[record["model_call_id"][:16]] for record in mirrored.store.read("0-0"))
    [part] = [part for message in json.loads(whole) for part in message["parts"]]
    assert ("tool_call", {"t": "\U0001f680"}) == (part["type"], part["arguments"])
    assert (True, False) == ("\ufffd" in half, "\ufffd" in neighbour)
    assert not mirrored.store.is_incomplete("0-0")


# ---- 24: forks


def test_24_each_child_of_a_fork_sends_its_span(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_variables(monkeypatch, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint)
    result = run("forks", tmp_path)
    assert ([True] * 3, 3) == (result["served"], len(result["ids"]))
    assert sorted(call_id[:16] for call_id in result["ids"]) == sorted(span.span_id.hex() for span in receiver.spans)


# ---- 26: a stream that another task closes


async def test_26_streams_cut_off_from_another_task_end_their_spans_once_and_leave_nothing_behind(
    mirrored: Mirrored, caplog: pytest.LogCaptureFixture
) -> None:
    async def deltas() -> AsyncGenerator[bytes, None]:
        yield delta(content="a")
        yield delta(content="b")
        await asyncio.Event().wait()

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        generator = deltas()
        for _ in range(2):
            piece = await asyncio.ensure_future(anext(generator))
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.ensure_future(generator.aclose())

    app = mirrored.app(inner)

    async def one_call() -> None:
        async with Exchange(
            app, f"/ng-rollout/0-0{PATHS['chat']}", b'{"model":"m","stream":true}', headers=JSON
        ) as call:
            for _ in range(3):
                await call.message()
        assert not trace.get_current_span().get_span_context().is_valid

    with caplog.at_level(logging.ERROR):
        await asyncio.gather(*(one_call() for _ in range(20)))
        spans = await asyncio.to_thread(mirrored.spans, 20)
    assert [] == [record.name for record in caplog.records]
    records = mirrored.store.read("0-0")
    assert ["cancelled"] * 20 == [record["error_category"] for record in records]
    assert sorted(record["model_call_id"][:16] for record in records) == sorted(span.span_id.hex() for span in spans)


# ---- 27: a caller that is not sampled


@pytest.mark.parametrize("variable", [("OTEL_TRACES_SAMPLER", "parentbased_always_on"), ("OTEL_SDK_DISABLED", "true")])
async def test_27_a_remote_flag_decides_about_the_mirror_and_never_about_the_record(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]
) -> None:
    set_variables(monkeypatch, **dict([variable]))
    mirrored = Mirrored(tmp_path, receiver)
    model = ScriptedModel.of(answer("chat", "hi"))
    await mirrored.call(model, headers=[(b"traceparent", f"{FOREIGN}-00".encode())])
    mirrored.close()
    assert (answer("chat", "hi"), []) == (mirrored.record()["response"], receiver.requests)
