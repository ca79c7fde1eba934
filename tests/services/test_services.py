"""The services and the receivers themselves, with the plain OTLP exporters as senders."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, Tracer, format_span_id
from opentelemetry.trace import format_trace_id as format_trace

from demo.child import ChildError
from tests.services.collector import Collector
from tests.services.jaeger import Jaeger, attributes
from tests.services.phoenix import Phoenix
from tests.services.process import running
from tests.services.receiver import Fault, Protocol, plain, receiver_running

pytestmark = pytest.mark.servers

ELSEWHERE = SpanContext(trace_id=0xA1, span_id=0xB2, is_remote=True, trace_flags=TraceFlags(1))


def exporter(protocol: str, endpoint: str, *, timeout_s: float = 10) -> SpanExporter:
    if protocol == "http":
        return HttpExporter(endpoint=f"{endpoint}/v1/traces", timeout=timeout_s)
    return GrpcExporter(endpoint=endpoint, insecure=True, timeout=timeout_s)


@contextmanager
def tracing(service: str, sender: SpanExporter, **resource: str) -> Iterator[Tracer]:
    """A tracer whose spans are sent as they end."""
    provider = TracerProvider(resource=Resource.create({"service.name": service, **resource}))
    provider.add_span_processor(SimpleSpanProcessor(sender))
    yield provider.get_tracer("tests")
    provider.shutdown()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("through_a_collector", [False, True])
def test_a_span_is_read_back_from_jaeger_as_it_was_sent(
    jaeger: Jaeger, request: pytest.FixtureRequest, protocol: str, through_a_collector: bool
) -> None:
    taker: Jaeger | Collector = request.getfixturevalue("collector") if through_a_collector else jaeger
    endpoint = taker.otlp_http if protocol == "http" else taker.otlp_grpc
    service = f"plain {protocol} {through_a_collector}"
    with tracing(service, exporter(protocol, endpoint)) as tracer:
        with tracer.start_as_current_span("outer", kind=SpanKind.SERVER, links=[Link(ELSEWHERE)]) as outer:
            outer.set_attributes({"text": "x", "count": 3, "share": 0.5, "yes": True, "list": ["a", "b"]})
            outer.set_status(Status(StatusCode.ERROR, "it broke"))
            with tracer.start_as_current_span("inner"):
                pass
        trace_id = format_trace(outer.get_span_context().trace_id)
        span_id = format_span_id(outer.get_span_context().span_id)
    first, second = jaeger.wait_for(trace_id, 2)
    assert (trace_id, span_id, "outer", service, None) == (
        first.trace_id,
        first.span_id,
        first.name,
        first.service,
        first.parent_id,
    )
    assert ((format_trace(0xA1), format_span_id(0xB2)),) == first.links
    expected = {"text": "x", "count": 3, "share": 0.5, "yes": True, "list": '["a","b"]', "span.kind": "server"}
    assert expected.items() <= first.tags.items()
    assert (True, "ERROR", "it broke") == tuple(
        first.tags[name] for name in ("error", "otel.status_code", "otel.status_description")
    )
    assert ["string", "int64", "float64", "bool"] == [first.types[name] for name in ("text", "count", "share", "yes")]
    assert ("inner", span_id, ()) == (second.name, second.parent_id, second.warnings)
    assert service in jaeger.services()
    assert {trace_id} == jaeger.find(service, {"text": "x"})
    assert set() == jaeger.find(service, {"text": "y"})


def test_jaeger_gives_a_trace_in_otlp_too_and_knows_nothing_of_others(jaeger: Jaeger) -> None:
    with tracing("otlp", exporter("http", jaeger.otlp_http)) as tracer:
        with tracer.start_as_current_span("one", attributes={"count": 3, "list": ["a"]}) as span:
            pass
        trace_id = format_trace(span.get_span_context().trace_id)
    jaeger.wait_for(trace_id)
    (given,) = jaeger.otlp(trace_id)
    assert (trace_id, "one", {"count": 3, "list": ["a"]}) == (given["traceId"], given["name"], attributes(given))
    assert ([], []) == (jaeger.trace("ab" * 16), jaeger.otlp("ab" * 16))


def test_a_collector_writes_what_it_takes_into_its_file(collector: Collector) -> None:
    with tracing("filed", exporter("grpc", collector.otlp_grpc)) as tracer:
        with tracer.start_as_current_span("one") as span:
            pass
        span_id = format_span_id(span.get_span_context().span_id)
    give_up = time.monotonic() + 30
    while span_id not in [kept["spanId"] for kept in collector.spans()]:
        assert time.monotonic() < give_up
        time.sleep(0.05)


@pytest.mark.backends
def test_phoenix_shows_a_span_that_it_was_sent(phoenix: Phoenix) -> None:
    resource = {"openinference.project.name": "plain"}
    told: dict[str, Any] = {
        "openinference.span.kind": "LLM",
        "llm.token_count.prompt": 7,
        "llm.token_count.completion": 5,
        "x.y": "z",
    }
    with tracing("plain", exporter("http", phoenix.url), **resource) as tracer:
        with tracer.start_as_current_span("one", attributes=told) as span:
            pass
        span_id = format_span_id(span.get_span_context().span_id)
    shown = phoenix.wait_for(span_id)
    assert ("one", "llm", {"name": "plain"}) == (shown["name"], shown["spanKind"], shown["project"])
    assert (7, 5) == (shown["tokenCountPrompt"], shown["tokenCountCompletion"])
    assert {"y": "z"} == shown["attributes"]["x"]
    assert phoenix.span("ab" * 8) is None


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_receiver_keeps_spans_headers_and_every_byte(protocol: Protocol, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=from-the-header")
    with (
        receiver_running(protocol) as receiver,
        tracing("kept", exporter(protocol, receiver.endpoint)) as tracer,
        tracer.start_as_current_span("one", attributes={"text": "from-the-body", "list": ["a"], "count": 3}),
    ):
        pass
    (span,) = receiver.spans
    assert ("one", {"text": "from-the-body", "list": ["a"], "count": 3}) == (span.name, plain(span.attributes))
    (request,) = receiver.requests
    assert ("x-key", "from-the-header") in request.headers
    assert all(word in request.everything() for word in (b"from-the-body", b"from-the-header"))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("fault", [Fault.HANG, Fault.RESET, Fault.UNAVAILABLE, Fault.TOO_LARGE])
def test_a_receiver_at_fault_takes_nothing_until_it_is_well_again(
    protocol: Protocol, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    with receiver_running(protocol, fault=fault) as receiver:
        with tracing("failing", exporter(protocol, receiver.endpoint, timeout_s=0.3)) as tracer:
            tracer.start_span("lost").end()
        assert ([], True) == (receiver.spans, len(receiver.requests) >= 1)
        receiver.fault = None
        with tracing("failing", exporter(protocol, receiver.endpoint)) as tracer:
            tracer.start_span("taken").end()
        assert ["taken"] == [span.name for span in receiver.spans]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_slow_receiver_takes_its_time_and_all_spans(protocol: Protocol) -> None:
    with (
        receiver_running(protocol, fault=Fault.SLOW) as receiver,
        tracing("slow", exporter(protocol, receiver.endpoint)) as tracer,
    ):
        begun = time.monotonic()
        tracer.start_span("one").end()
        assert (["one"], True) == ([span.name for span in receiver.spans], time.monotonic() - begun >= 0.9)


def test_a_receiver_comes_back_where_it_was() -> None:
    with receiver_running("http") as receiver:
        port = receiver.port
    with (
        receiver_running("http", port=port) as receiver,
        tracing("again", exporter("http", receiver.endpoint)) as tracer,
    ):
        tracer.start_span("one").end()
        assert (port, ["one"]) == (receiver.port, [span.name for span in receiver.spans])


def test_a_service_that_ends_at_once_tells_its_last_words(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo no such setting; exit 3"]
    with (
        pytest.raises(ChildError, match=r"ended with exit code 3; (?s:.*)no such setting"),
        running(command, log=tmp_path / "log", ready=lambda: False),
    ):
        pass


def test_a_service_that_is_deaf_to_the_request_to_end_is_ended_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.services.process.SECONDS_TO_STOP", 0.2)
    started = tmp_path / "started"
    command = ["sh", "-c", f"trap '' TERM; touch {started}; while true; do sleep 0.1; done"]
    with running(command, log=tmp_path / "log", ready=started.exists) as pid:
        pass
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
