from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_gym.dialects import DIALECTS
from otel_gym.sse import events
from otel_gym.testing import CapturingExporter, DialectName, Exchange, ScriptedModel, answer, sse, stream


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
def test_the_events_of_an_answer_amount_to_the_answer(dialect: Any) -> None:
    assembly = dialect.assemble(events(b"".join(stream(dialect.name, "Hel", "lo"))))
    assert ("complete", answer(dialect.name, "Hello")) == (assembly.terminal, assembly.response)


@pytest.mark.parametrize(
    ("data", "event", "text"),
    [
        ({"a": 1}, None, b'data: {"a": 1}\n\n'),
        ("[DONE]", None, b"data: [DONE]\n\n"),
        ({}, "ping", b"event: ping\ndata: {}\n\n"),
    ],
)
def test_an_event_has_its_name_before_its_data(data: object, event: str | None, text: bytes) -> None:
    assert text == sse(data, event)


async def test_each_message_is_seen_before_the_model_sends_the_next() -> None:
    go = asyncio.Event()
    model = ScriptedModel([b"one", go, b"two"])
    async with Exchange(model, "/v1/x%2Fy?q=1", [b"{", b"}"]) as call:
        assert {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]} == (
            await call.message()
        )
        assert {"type": "http.response.body", "body": b"one", "more_body": True} == await call.message()
        assert not call.task.done()
        go.set()
        assert [b"two", b""] == [message["body"] for message in await call.rest()]
        assert None is await call.message()
    assert b"onetwo" == call.body
    assert [b"{}"] == model.bodies
    assert [("POST", "/v1/x/y", b"/v1/x%2Fy", b"q=1")] == [
        (scope["method"], scope["path"], scope["raw_path"], scope["query_string"]) for scope in model.scopes
    ]


async def test_a_json_answer_is_one_last_message() -> None:
    async with Exchange(ScriptedModel.of({"a": 1}, status=201), "/") as call:
        start, body = await call.rest()
    assert (201, [(b"content-type", b"application/json")]) == (start["status"], start["headers"])
    assert ({"a": 1}, False) == (json.loads(body["body"]), body["more_body"])


async def test_an_exception_of_the_model_comes_after_its_messages() -> None:
    async with Exchange(ScriptedModel([b"one", 0, RuntimeError("gone")]), "/") as call:
        with pytest.raises(RuntimeError, match="gone"):
            await call.rest()
    assert b"one" == call.body


async def test_leaving_cancels_a_call_that_still_runs() -> None:
    async with Exchange(ScriptedModel([asyncio.Event()]), "/") as call:
        await call.message()
    assert call.task.cancelled()


async def test_a_client_that_leaves_is_seen_by_the_application() -> None:
    async def waits(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(await receive())

    async with Exchange(waits, "/") as call:
        call.disconnect()
        assert {"type": "http.disconnect"} == await call.message()


async def test_the_exporter_keeps_what_it_is_given() -> None:
    exporter = CapturingExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.get_tracer("t").start_span("one").end()
    assert ["one"] == [span.name for span in await asyncio.to_thread(exporter.wait_for, 1)]
    with pytest.raises(TimeoutError, match="1 spans, not 2"):
        exporter.wait_for(2, timeout_s=0)


def test_every_dialect_has_an_answer() -> None:
    names: tuple[DialectName, ...] = ("responses", "chat", "messages")
    assert set(names) == {dialect.name for dialect in DIALECTS.values()}
