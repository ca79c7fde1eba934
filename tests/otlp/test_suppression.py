"""What the mirror itself does with a network makes no spans, where clients are instrumented."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
import requests
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_gym_otlp import Mirror
from otel_gym_otlp.outcome import SENT
from otel_gym_otlp.sdk_senders import ExporterSender
from tests.otlp.spans import RECEIPT, call_ids, ended, light_copy
from tests.services.receiver import EXPORT, Receiver, grpc_receiver, http_receiver

pytestmark = pytest.mark.servers  # these instrumentations are not made for the oldest SDK


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans of everybody who asks by `requests` or gRPC."""
    from opentelemetry.instrumentation.grpc import GrpcInstrumentorClient
    from opentelemetry.instrumentation.requests import RequestsInstrumentor

    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # that of gRPC knows no other
    instrumentors = (RequestsInstrumentor(), GrpcInstrumentorClient())  # type: ignore[no-untyped-call]
    for instrumentor in instrumentors:
        instrumentor.instrument()
    try:
        yield exporter
    finally:
        for instrumentor in instrumentors:
            instrumentor.uninstrument()


def ask_both(http: Receiver, over_grpc: Receiver) -> None:
    """Not as the mirror does: an empty request of an application's own."""
    requests.post(http.endpoint + "/v1/traces", data=b"", timeout=30)
    channel = grpc.insecure_channel(over_grpc.endpoint.removeprefix("http://"))
    channel.unary_unary(EXPORT)(b"", timeout=30)
    channel.close()


def test_spans_over_both_protocols_arrive_and_no_span_is_made_of_their_sending(traced: InMemorySpanExporter) -> None:
    with http_receiver() as http, grpc_receiver() as over_grpc:
        mirror = Mirror([{"endpoint": http.endpoint}, {"endpoint": over_grpc.endpoint, "protocol": "grpc"}])
        for call in "ab":
            mirror.offer(ended(call), RECEIPT)
            assert mirror.flush(20)
        assert mirror.close(10)
        assert [["a", "b"]] * 2 == [call_ids(receiver.spans) for receiver in (http, over_grpc)]
        assert () == traced.get_finished_spans()
        ask_both(http, over_grpc)
    assert 2 == len(traced.get_finished_spans()), "those who are not the mirror are traced"


def test_nor_is_one_made_where_another_exporter_sends(traced: InMemorySpanExporter) -> None:
    with http_receiver() as receiver:
        sender = ExporterSender(lambda: lambda: OTLPSpanExporter(receiver.endpoint + "/v1/traces"), {})
        span, _ = light_copy(ended("a"))
        packed, _ = sender.pack(span, span.attributes)
        assert SENT == sender.send([packed])
        sender.close()
        assert ["a"] == call_ids(receiver.spans)
        assert () == traced.get_finished_spans()
