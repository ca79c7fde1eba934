"""Faults that people met elsewhere, as a backend sees them: the spans of inputs 5, 15, 24, 26, 27 of the field page.

Input 23 is that of `tests/test_span_facts.py`, 25 of `tests/servers/test_other_instrumentation.py`, 28 of
`tests/services/test_collector.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace import StatusCode

from otel_gym.calls import Call
from otel_gym.collecting import Collection
from otel_gym.dialects import DIALECTS
from otel_gym.evidence_spans import EvidenceSpans, standard_sampler
from otel_gym.parentage import Parentage
from otel_gym.testing import JSON, Application, Exchange, ScriptedModel, answer
from otel_gym_jsonl import exporter
from tests.field.capture import PATHS, delta, wire
from tests.field.test_processes import run
from tests.mirrored import FOREIGN, RUN, Mirrored, attributes, header
from tests.services.receiver import Receiver
from tests.test_mirror_integration import global_provider

CONTENT = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"}


def set_variables(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


async def calls_of(app: Application, count: int) -> None:
    """So many calls of rollout 0-0 one after the other: their spans are of one batch."""
    for _ in range(count):
        async with Exchange(app, f"/ng-rollout/0-0{PATHS['chat']}", b'{"model":"m","stream":true}') as call:
            await call.rest()


# ---- 5: an error that says 200


async def test_5_an_error_in_a_200_answer_gives_a_span_without_usage_and_finish_reasons(mirrored: Mirrored) -> None:
    body = {"code": "daily_quota", "message": "try again tomorrow"}
    await mirrored.call(ScriptedModel.of(body))
    span = mirrored.span()
    said = attributes(span)
    assert (body, None) == (mirrored.record()["response"], mirrored.record()["error_category"])
    assert [] == [name for name in said if name.startswith(("gen_ai.usage.", "gen_ai.response."))]
    assert ("chat m", 200, "m", True) == (
        span.name,
        said["http.response.status_code"],
        said["gen_ai.request.model"],
        said["otel_gym.record.durable"],
    )
    assert ("error.type" in said, StatusCode.UNSET.value) == (False, span.status.code)


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

UNSAMPLED = (b"traceparent", f"{FOREIGN}-00".encode())


async def test_27_a_remote_flag_keeps_a_span_from_the_process_own_provider_and_changes_no_record_and_no_id(
    tmp_path: Path,
) -> None:
    with global_provider(ParentBased(ALWAYS_ON)) as exported:
        mirrored = Mirrored(tmp_path)
        model = ScriptedModel.of(answer("chat", "hi"))
        await mirrored.call(model, headers=[UNSAMPLED])
        await mirrored.call(rollout_id="0-1", headers=[(b"traceparent", f"{FOREIGN}-01".encode())])
        await asyncio.to_thread(exported.wait_for, 1)
        mirrored.close()
    record = mirrored.record()
    assert [mirrored.trace_id("0-1")] == [f"{span.context.trace_id:032x}" for span in exported.spans if span.context]
    assert (answer("chat", "hi"), False) == (record["response"], mirrored.store.is_incomplete("0-0"))
    expected = f"00-{mirrored.trace_id()}-{record['model_call_id'][:16]}-00"
    assert [expected] == header(model.scopes[0], b"traceparent")


async def test_27_without_an_sdk_the_record_is_whole_and_the_ids_of_its_span_are_the_same(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No span is made for the mirror then, and so the application gets the caller's trace context as it came."""
    set_variables(monkeypatch, OTEL_SDK_DISABLED="true")
    with global_provider(ParentBased(ALWAYS_ON)) as exported:
        mirrored = Mirrored(tmp_path, receiver)
        model = ScriptedModel.of(answer("chat", "hi"))
        await mirrored.call(model, headers=[UNSAMPLED])
        mirrored.close()
    assert (answer("chat", "hi"), False) == (mirrored.record()["response"], mirrored.store.is_incomplete("0-0"))
    assert ([], []) == (receiver.requests, exported.spans)
    assert [UNSAMPLED[1].decode()] == header(model.scopes[0], b"traceparent")
    span = evidence_span(tmp_path)
    record = json.loads(exporter.line(span.attributes or {}))
    context = span.context
    assert context is not None
    assert (mirrored.trace_id(), record["model_call_id"][:16]) == (
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
    )


def evidence_span(directory: Path) -> ReadableSpan:
    """The span behind a record, which nobody but its exporter sees, of a call whose caller is not sampled."""
    call = Call("0-0", DIALECTS[PATHS["chat"]], 1 << 20, None)
    scope = {"type": "http", "method": "POST", "path": PATHS["chat"], "headers": [UNSAMPLED]}
    call.ancestry = Parentage(RUN, "link", standard_sampler).of(call.rollout_id, call.model_call_id, scope)
    call.complete()
    return EvidenceSpans(Collection(directory)).end(call, call.evidence(), {})
