"""From a call to the span that a backend gets: ids, place, attributes, receipt. Its record stays the same."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import SpanKind

from otel_gym.calls import Call
from otel_gym.collecting import COLLECT_LOCK_FILE
from otel_gym.provider import pipeline_for
from otel_gym.testing import CapturingExporter, ScriptedModel, answer, stream
from otel_gym.trace_ids import RUN_ID_FILE, rollout_trace
from tests.mirrored import FOREIGN, PATHS, Mirrored, attributes, header
from tests.services.receiver import Receiver

TRACEPARENT = (b"traceparent", f"{FOREIGN}-01".encode())
UNSAMPLED = (b"traceparent", f"{FOREIGN}-00".encode())


@contextlib.contextmanager
def global_provider(sampler: Sampler = DEFAULT_ON) -> Iterator[CapturingExporter]:
    """The process has a tracer provider of its user's; what its processors export."""
    exporter = CapturingExporter()
    provider = TracerProvider(sampler=sampler, resource=Resource({"service.name": "users"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    before = trace._TRACER_PROVIDER
    trace._TRACER_PROVIDER = provider
    try:
        yield exporter
    finally:
        trace._TRACER_PROVIDER = before
        provider.shutdown()


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


# ---------------------------------------------------------------------- ids


async def test_record_and_span_name_each_other_by_derived_ids(mirrored: Mirrored) -> None:
    await mirrored.call()
    span, record = mirrored.span(), mirrored.record()
    assert (mirrored.trace_id(), record["model_call_id"][:16], "") == (
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
    )
    assert record["model_call_id"] == attributes(span)["otel_gym.model_call.id"]


async def test_the_calls_of_a_rollout_are_one_trace_and_those_of_another_one_a_second(mirrored: Mirrored) -> None:
    for rollout_id in ("0-0", "0-0", "0-1"):
        await mirrored.call(rollout_id=rollout_id)
    ids = sorted(mirrored.trace_id(rollout_id) for rollout_id in ("0-0", "0-0", "0-1"))
    assert ids == sorted(span.trace_id.hex() for span in mirrored.spans(3))


async def test_without_the_setting_the_run_id_of_the_directory_is_made_before_the_first_call(
    tmp_path: Path, receiver: Receiver
) -> None:
    mirrored = Mirrored(tmp_path, receiver, run_id=None)
    mirrored.app(ScriptedModel())
    run_id = (tmp_path / RUN_ID_FILE).read_text().strip()
    await mirrored.call()
    assert f"{rollout_trace(run_id, '0-0').trace_id:032x}" == mirrored.span().trace_id.hex()


@pytest.mark.parametrize("settings", [{"mirror": False}, {"mirror_destinations": []}, {"mirror_destinations": None}])
async def test_capture_alone_leaves_no_run_id_and_touches_no_header(
    tmp_path: Path, receiver: Receiver, settings: dict[str, Any]
) -> None:
    mirrored = Mirrored(tmp_path, receiver, run_id=None, **settings)
    model = ScriptedModel.of(answer("chat", "hi"))
    await mirrored.call(model, headers=[TRACEPARENT])
    assert ["0-0.capture.jsonl"] == files(tmp_path)
    assert [f"{FOREIGN}-01"] == header(model.scopes[0], b"traceparent")
    assert [] == receiver.requests


async def test_the_record_is_the_same_with_and_without_a_mirror(tmp_path: Path, receiver: Receiver) -> None:
    told = []
    for name, settings in (("off", {"mirror": False}), ("on", {}), ("joined", {"foreign_trace": "parent"})):
        mirrored = Mirrored(tmp_path / name, receiver, **settings)
        for dialect in PATHS:
            await mirrored.call(ScriptedModel(stream(dialect, "a", "b")), "0-0", dialect)  # type: ignore[arg-type]
            await mirrored.call(ScriptedModel.of({"error": "no"}, status=500), "0-0", dialect, headers=[TRACEPARENT])
        records = mirrored.store.read("0-0")
        for record in records:
            for its_own in ("model_call_id", "started_at", "completed_at", "latency_ms", "latency_ttft_ms"):
                record[its_own] = None
        told.append([json.dumps(record) for record in records])  # keys in their order
    assert told[0] == told[1] == told[2]


# ---------------------------------------------------------------------- place among other spans


@pytest.mark.parametrize("collected", [True, False])
async def test_a_call_hangs_below_the_rollouts_root_only_while_a_collection_will_send_it(
    mirrored: Mirrored, collected: bool
) -> None:
    mirrored.store.directory.mkdir(exist_ok=True)
    with (mirrored.store.directory / COLLECT_LOCK_FILE).open("w") as file:
        if collected:
            fcntl.flock(file, fcntl.LOCK_EX)
        await mirrored.call()
    span = mirrored.span()
    assert (mirrored.trace_id(), mirrored.root_span_id() if collected else "") == (
        span.trace_id.hex(),
        span.parent_span_id.hex(),
    )


async def test_a_caller_of_another_trace_is_linked_to(mirrored: Mirrored) -> None:
    await mirrored.call(headers=[TRACEPARENT])
    span = mirrored.span()
    (link,) = span.links
    assert (mirrored.trace_id(), "") == (span.trace_id.hex(), span.parent_span_id.hex())
    assert ("ab" * 16, "cd" * 8) == (link.trace_id.hex(), link.span_id.hex())


async def test_a_caller_of_another_trace_becomes_the_parent_where_the_user_says_so(
    tmp_path: Path, receiver: Receiver
) -> None:
    mirrored = Mirrored(tmp_path, receiver, foreign_trace="parent")
    await mirrored.call(headers=[TRACEPARENT])
    span = mirrored.span()
    assert ("ab" * 16, "cd" * 8, 0) == (span.trace_id.hex(), span.parent_span_id.hex(), len(span.links))


async def test_a_caller_in_the_rollouts_own_trace_is_the_parent(mirrored: Mirrored) -> None:
    traceparent = (b"traceparent", f"00-{mirrored.trace_id()}-{mirrored.root_span_id()}-01".encode())
    await mirrored.call(headers=[traceparent])
    assert mirrored.root_span_id() == mirrored.span().parent_span_id.hex()


@pytest.mark.servers  # the oldest instrumentation for httpx needs a setuptools that is no more
@pytest.mark.parametrize("foreign_trace", ["link", "parent"])
async def test_spans_and_http_calls_of_the_application_hang_below_the_call(tmp_path: Path, foreign_trace: str) -> None:
    """The application asks an upstream by an instrumented httpx, and makes a span of its own."""
    from opentelemetry.instrumentation.httpx import AsyncOpenTelemetryTransport

    upstream: list[httpx.Headers] = []

    def serve(request: httpx.Request) -> httpx.Response:
        upstream.append(request.headers)
        return httpx.Response(200, json={})

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        with trace.get_tracer("app").start_as_current_span("inside"):
            pass
        transport = AsyncOpenTelemetryTransport(httpx.MockTransport(serve))
        async with httpx.AsyncClient(transport=transport) as client:
            await client.get("http://upstream.test/")
        await ScriptedModel.of(answer("chat", "hi"))(scope, _read, send)

    async def _read() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    with global_provider() as exported:
        mirrored = Mirrored(tmp_path, foreign_trace=foreign_trace)
        await mirrored.call(app, headers=[TRACEPARENT])
        spans = {span.name: span for span in await asyncio.to_thread(exported.wait_for, 3)}
    call = spans.pop("chat m")
    assert call.context is not None
    for span in spans.values():
        assert span.parent is not None
        assert (call.context.trace_id, call.context.span_id) == (span.parent.trace_id, span.parent.span_id)
    assert {"inside", "GET"} == set(spans)
    assert f"{call.context.trace_id:032x}" == upstream[0]["traceparent"].split("-")[1]
    assert ("ab" * 16 if foreign_trace == "parent" else mirrored.trace_id()) == f"{call.context.trace_id:032x}"
    assert "users" == call.resource.attributes["service.name"]


async def test_below_a_server_span_of_another_instrumentation_a_call_is_internal(tmp_path: Path) -> None:
    with global_provider() as exported:
        mirrored = Mirrored(tmp_path, foreign_trace="parent")
        with trace.get_tracer("fastapi").start_as_current_span("POST /v1", kind=SpanKind.SERVER) as outside:
            await mirrored.call()
        call, _ = sorted(await asyncio.to_thread(exported.wait_for, 2), key=lambda span: span.name != "chat m")
    assert call.parent is not None
    assert (SpanKind.INTERNAL, outside.get_span_context().span_id) == (call.kind, call.parent.span_id)


async def test_the_application_sees_one_traceparent_and_it_is_the_calls(mirrored: Mirrored) -> None:
    model = ScriptedModel.of(answer("chat", "hi"))
    await mirrored.call(model, headers=[TRACEPARENT])
    span = mirrored.span()
    assert [f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01"] == header(model.scopes[0], b"traceparent")


# ---------------------------------------------------------------------- sampling


async def test_a_caller_that_is_not_sampled_keeps_its_spans_and_never_the_record(mirrored: Mirrored) -> None:
    model = ScriptedModel.of(answer("chat", "hi"))
    await mirrored.call(model, headers=[UNSAMPLED])
    await mirrored.call(rollout_id="0-1")
    assert [mirrored.trace_id("0-1")] == [span.trace_id.hex() for span in mirrored.spans(1)]
    assert "m" == mirrored.record()["request"]["model"]
    assert [f"00-{mirrored.trace_id()}-{mirrored.record()['model_call_id'][:16]}-00"] == header(
        model.scopes[0], b"traceparent"
    )


async def test_the_sampler_of_the_standard_variables_decides_about_calls_without_a_caller(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    mirrored = Mirrored(tmp_path, receiver)
    await mirrored.call()
    await mirrored.call(rollout_id="0-1", headers=[TRACEPARENT])
    assert [mirrored.trace_id("0-1")] == [span.trace_id.hex() for span in mirrored.spans(1)]
    assert "m" == mirrored.record()["request"]["model"]


async def test_the_sampler_of_the_processs_provider_decides_where_spans_go_there(tmp_path: Path) -> None:
    with global_provider(ParentBased(TraceIdRatioBased(0.5))) as exported:
        mirrored = Mirrored(tmp_path)
        kept = [f"r-{number}" for number in range(20) if int(mirrored.trace_id(f"r-{number}")[16:], 16) < 2**63]
        for number in range(20):
            await mirrored.call(rollout_id=f"r-{number}")
        spans = await asyncio.to_thread(exported.wait_for, len(kept))
    assert sorted(kept) == sorted(str((span.attributes or {})["nemo.gym.rollout.id"]) for span in spans)


# ---------------------------------------------------------------------- destinations


async def test_the_standard_variables_alone_switch_the_mirror_on(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
    mirrored = Mirrored(tmp_path)
    mirrored.receiver = receiver
    await mirrored.call()
    assert "chat m" == mirrored.span().name


@pytest.mark.parametrize(
    "environment",
    [
        {"OTEL_GYM_MIRROR": "false"},
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_TRACES_EXPORTER": "none"},
    ],
)
async def test_each_switch_turns_the_mirror_off_and_not_the_record(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    mirrored = Mirrored(tmp_path, run_id=None)
    await mirrored.call(headers=[UNSAMPLED])
    assert "m" == mirrored.record()["request"]["model"]
    assert (["0-0.capture.jsonl"], []) == (files(tmp_path), receiver.requests)


async def test_a_provider_that_the_application_sets_up_while_it_starts_is_found(tmp_path: Path) -> None:
    mirrored = Mirrored(tmp_path)
    with contextlib.ExitStack() as stack:
        exported = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "lifespan":
                await ScriptedModel.of(answer("chat", "hi"))(scope, receive, send)
                return
            await receive()
            exported.append(stack.enter_context(global_provider()))
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})

        inbox: asyncio.Queue[Any] = asyncio.Queue()
        outbox: asyncio.Queue[Any] = asyncio.Queue()
        middleware = mirrored.app(app)
        running = asyncio.ensure_future(middleware({"type": "lifespan"}, inbox.get, outbox.put))
        await inbox.put({"type": "lifespan.startup"})
        assert "lifespan.startup.complete" == (await outbox.get())["type"]
        await mirrored.call()
        await inbox.put({"type": "lifespan.shutdown"})
        assert "lifespan.shutdown.complete" == (await outbox.get())["type"]
        await running
        assert ["chat m"] == [span.name for span in exported[0].spans]  # drained: nobody waits for it


async def test_the_end_of_a_server_is_not_kept_by_a_backend_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_gym.provider.MIRROR_DRAIN_SECONDS", 0.05)
    mirrored = Mirrored(tmp_path, mirror_destinations=[{"endpoint": "http://127.0.0.1:9"}])
    app = mirrored.app(ScriptedModel.of(answer("chat", "hi")))
    await mirrored.call()
    await asyncio.wait_for(app.aclose(), 20)
    mirrored.close()
    assert "m" == mirrored.record()["request"]["model"]


# ---------------------------------------------------------------------- the receipt


async def test_the_span_tells_where_its_record_lies_and_the_hash_is_that_of_the_line(mirrored: Mirrored) -> None:
    await mirrored.call()
    said = attributes(mirrored.span())
    line = mirrored.store.path_for("0-0").read_bytes()
    assert (True, "0-0.capture.jsonl", len(line), hashlib.sha256(line).hexdigest()) == (
        said["otel_gym.record.durable"],
        said["otel_gym.record.file"],
        said["otel_gym.record.bytes"],
        said["otel_gym.record.sha256"],
    )


async def test_lines_of_one_group_have_each_their_own_hash(mirrored: Mirrored) -> None:
    await asyncio.gather(*(mirrored.call() for _ in range(20)))
    lines = mirrored.store.path_for("0-0").read_bytes().splitlines(keepends=True)
    expected = {json.loads(line)["model_call_id"]: hashlib.sha256(line).hexdigest() for line in lines}
    said = [attributes(span) for span in mirrored.spans(20)]
    assert expected == {one["otel_gym.model_call.id"]: one["otel_gym.record.sha256"] for one in said}


async def test_a_record_that_is_lost_is_told_of_as_not_durable(tmp_path: Path, receiver: Receiver) -> None:
    mirrored = Mirrored(tmp_path, receiver, write_timeout_s=0.2)
    held = tmp_path / "0-0.capture.jsonl"
    with held.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        await asyncio.gather(mirrored.call(), mirrored.call())  # the second waits behind the first, and is not read
    spans = mirrored.spans(2)
    assert [{"otel_gym.record.durable": False}] * 2 == [
        {name: value for name, value in attributes(span).items() if name.startswith("otel_gym.record.")}
        for span in spans
    ]
    assert [(mirrored.trace_id(), 200)] * 2 == [
        (span.trace_id.hex(), attributes(span)["http.response.status_code"]) for span in spans
    ]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_call_that_is_given_up_while_it_is_read_is_told_of_as_lost_and_its_record_stays_whole(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    reads, go_on = threading.Event(), threading.Event()
    read = Call.evidence

    def read_slowly(call: Call) -> dict[str, Any]:
        evidence = read(call) if when == "after" else None
        reads.set()
        assert go_on.wait(30)
        return read(call) if evidence is None else evidence

    monkeypatch.setattr(Call, "evidence", read_slowly)
    calling = asyncio.create_task(mirrored.call())
    assert await asyncio.to_thread(reads.wait, 30)
    pipeline = pipeline_for(mirrored.settings)
    assert not pipeline.writer.drain(0)
    await calling
    go_on.set()
    assert pipeline.writer.drain(30)
    assert pipeline._teller.flush(30)
    span, record = mirrored.span(), mirrored.record()
    assert (mirrored.trace_id(), False) == (span.trace_id.hex(), attributes(span)["otel_gym.record.durable"])
    assert ({"model": "m"}, "hi", 200) == (
        record["request"],
        record["response"]["choices"][0]["message"]["content"],
        record["status_code"],
    )
