"""Where the process has a tracer provider with processors, spans go through it, and only through it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import (
    ReadableSpan,
    Span,
    SpanLimits,
    SpanProcessor,
    SynchronousMultiSpanProcessor,
    TracerProvider,
)
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_gym_otlp import Mirror
from otel_gym_otlp import attributes as names
from otel_gym_otlp.suppression import suppressed
from tests.otlp.spans import RECEIPT, call_ids, ended, ended_with, message
from tests.servers.processes import wait_until
from tests.services.receiver import http_receiver, plain


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> TracerProvider:
    """The process's own, for one test."""
    made = TracerProvider(resource=Resource({"service.name": "theirs"}), shutdown_on_exit=False)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", made)
    return made


def ids(exporter: InMemorySpanExporter) -> list[Any]:
    return [(span.attributes or {})["otel_gym.model_call.id"] for span in exporter.get_finished_spans()]


def test_copies_go_to_the_processors_of_the_global_provider_as_its_own_spans(provider: TracerProvider) -> None:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    mirror = Mirror()
    assert mirror.wanted()
    original = ended("1", error="timeout")
    mirror.offer(original, RECEIPT)
    assert mirror.close(10)
    (span,) = exporter.get_finished_spans()
    assert ("theirs", "otel_gym", "chat m") == (
        span.resource.attributes["service.name"],
        span.instrumentation_scope and span.instrumentation_scope.name,
        span.name,
    )
    assert (original.get_span_context(), original.kind, original.status.description) == (
        span.get_span_context(),
        span.kind,
        span.status.description,
    )
    attributes = span.attributes or {}
    assert (True, "1") == (attributes[names.RECORD_DURABLE], attributes["otel_gym.model_call.id"])
    assert not [name for name in attributes if name.startswith("otel_gym.evidence.")]


def test_a_provider_without_processors_is_none(provider: TracerProvider) -> None:
    mirror = Mirror()
    mirror.offer(ended(), RECEIPT)
    assert (False, 0) == (mirror.wanted(), mirror.queued_bytes)


class OnlyAdds(SpanProcessor):
    """As the baggage processor of the contributed packages."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        span.set_attribute("added", "at the start")


class DoesNothingAtTheEnd(OnlyAdds):
    def on_end(self, span: ReadableSpan) -> None:
        pass


@pytest.mark.parametrize("silent", [OnlyAdds, DoesNothingAtTheEnd, SynchronousMultiSpanProcessor])
def test_a_provider_whose_processors_export_nothing_swallows_no_span(
    provider: TracerProvider,
    silent: type[SpanProcessor],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(silent())
    assert not Mirror().wanted()
    with http_receiver() as receiver, caplog.at_level(logging.INFO, logger="otel_gym_otlp"):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        mirror = Mirror()
        for call in "ab":
            mirror.offer(ended(call), RECEIPT)
            assert mirror.flush(10)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        for call in "cd":
            mirror.offer(ended(call), RECEIPT)
            assert mirror.flush(10)
        assert mirror.close(10)
        provider.shutdown()
        assert (["a", "b"], ["c", "d"]) == (call_ids(receiver.spans), ids(exporter))
    assert [
        f"otel-gym: spans go to {receiver.endpoint}: the process's own tracer provider exports none",
        "otel-gym: spans go through the process's own tracer provider",
    ] == [record.getMessage() for record in caplog.records]


class Keeping(SpanProcessor):
    """Somebody's own, with the exporter behind a queue that is emptied when told."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._behind = exporter
        self._kept: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self._kept.append(span)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        self._behind.export(self._kept)
        self._kept = []
        return True


def has(exporter: InMemorySpanExporter, call: str) -> bool:
    return call in ids(exporter)


def batching(exporter: InMemorySpanExporter) -> SpanProcessor:
    return BatchSpanProcessor(exporter, schedule_delay_millis=3_600_000)


@pytest.mark.parametrize("made", [batching, Keeping])
def test_what_a_processor_keeps_is_sent_without_anybody_asking(
    provider: TracerProvider, made: Callable[[InMemorySpanExporter], SpanProcessor]
) -> None:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(made(exporter))
    mirror = Mirror()
    for call in "abc":
        mirror.offer(ended(call), RECEIPT)
        wait_until(partial(has, exporter, call), 30)
    assert ["a", "b", "c"] == ids(exporter)
    assert mirror.close(10)
    provider.shutdown()


def test_a_processor_that_keeps_nothing_is_not_flushed_but_where_somebody_waits(provider: TracerProvider) -> None:
    flushes = []

    class Simple(SimpleSpanProcessor):
        def force_flush(self, timeout_millis: int = 30000) -> bool:
            flushes.append(timeout_millis)
            return True

    exporter = InMemorySpanExporter()
    provider.add_span_processor(Simple(exporter))
    mirror = Mirror()
    mirror.offer(ended("1"), RECEIPT)
    wait_until(lambda: ids(exporter) == ["1"], 30)
    assert None is mirror._lanes[0]._sender.flush_after_s
    assert ([], True, 1) == (flushes.copy(), mirror.flush(10), len(flushes))
    mirror.close(10)


def test_a_span_goes_one_way_and_never_both_also_when_the_provider_comes_later(
    provider: TracerProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = InMemorySpanExporter()
    with http_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp,console")
        mirror = Mirror()
        mirror._lanes.pop()  # the console's, which would write here
        mirror.offer(ended("own"), RECEIPT)
        assert mirror.flush(10)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        mirror.offer(ended("theirs"), RECEIPT)
        assert mirror.close(10)
        provider.shutdown()
        assert (["own"], ["theirs"]) == (call_ids(receiver.spans), ids(exporter))


def test_of_several_standard_exporters_one_hands_spans_to_the_provider(
    provider: TracerProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console,otlp")
    mirror = Mirror()
    mirror.offer(ended("1"), RECEIPT)
    assert mirror.close(10)
    assert ["1"] == ids(exporter)


def test_destinations_of_the_users_own_are_the_only_ones(provider: TracerProvider) -> None:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with http_receiver() as receiver:
        mirror = Mirror([{"endpoint": receiver.endpoint}])
        mirror.offer(ended("1"), RECEIPT)
        assert mirror.close(10)
        assert (["1"], []) == (call_ids(receiver.spans), ids(exporter))


def test_content_and_limits_are_those_of_the_provider(
    provider: TracerProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = InMemorySpanExporter()
    limited = TracerProvider(span_limits=SpanLimits(max_span_attributes=9, max_span_attribute_length=5))
    limited.add_span_processor(SimpleSpanProcessor(exporter))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    span = ended_with({names.INPUT_MESSAGES: message("hello"), "long": "x" * 10})
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    mirror = Mirror()
    mirror.offer(span, RECEIPT)
    assert mirror.flush(10)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", limited)
    mirror.offer(span, RECEIPT)
    assert mirror.close(10)
    whole, cut = (dict(span.attributes or {}) for span in exporter.get_finished_spans())
    assert (message("hello"), "x" * 10) == (whole[names.INPUT_MESSAGES], whole["long"])
    assert (9, "xxxxx") == (len(cut), cut["long"])


def test_a_batch_processor_that_counts_spans_never_gets_more_bytes_than_receivers_take(
    provider: TracerProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    with http_receiver() as receiver:
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(receiver.endpoint + "/v1/traces")))
        mirror = Mirror()
        for call in range(9):
            size = 5_000_000 if call == 4 else 1_000_000
            mirror.offer(ended_with({names.INPUT_MESSAGES: message("x" * size)}, str(call)), RECEIPT)
        assert mirror.close(20)
        provider.shutdown()
        assert max(len(request.body) for request in receiver.requests) < 4 * 1024 * 1024
        shown = {
            plain(span.attributes)["otel_gym.model_call.id"]: len(plain(span.attributes).get(names.INPUT_MESSAGES, ""))
            for span in receiver.spans
        }
        assert {str(call): 0 if call == 4 else len(message("x" * 1_000_000)) for call in range(9)} == shown
    assert 1 == mirror.shed["content"]


def test_a_processor_that_raises_costs_nobody_anything(provider: TracerProvider) -> None:
    class Broken(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            raise RuntimeError("broken")

        def force_flush(self, timeout_millis: int = 30000) -> bool:
            raise RuntimeError("broken")

    provider.add_span_processor(Broken())
    mirror = Mirror()
    for call in "ab":
        mirror.offer(ended(call), RECEIPT)
    assert mirror.close(10)
    assert {} == dict(mirror.shed)


def test_what_a_batch_processor_keeps_is_sent_at_the_end_since_a_signal_lets_nothing_run_after_it(
    provider: TracerProvider,
) -> None:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=60_000))
    mirror = Mirror()
    mirror.offer(ended("1"), RECEIPT)
    assert mirror.flush(10)
    assert ["1"] == ids(exporter)
    provider.shutdown()


def test_a_processor_that_never_gets_rid_of_its_spans_holds_nobody_up_for_longer_than_said(
    provider: TracerProvider,
) -> None:
    hanging, ended_at_last = threading.Event(), threading.Event()
    taken: list[ReadableSpan] = []

    class Hanging(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            taken.append(span)

        def force_flush(self, timeout_millis: int = 30000) -> bool:
            hanging.set()
            return ended_at_last.wait(60)

    provider.add_span_processor(Hanging())
    mirror = Mirror(flush_at_exit_s=0)
    mirror.offer(ended("1"), RECEIPT)
    assert not mirror.flush(0.5)
    assert hanging.is_set()
    assert (1, {}) == (mirror.sent, dict(mirror.shed))
    ended_at_last.set()
    assert mirror.close(10)


def test_a_provider_behind_another_one_is_found(provider: TracerProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    class Front:  # what Logfire puts before the SDK's
        def __init__(self) -> None:
            self.provider = provider

    monkeypatch.setattr(trace, "_TRACER_PROVIDER", Front())
    mirror = Mirror()
    mirror.offer(ended("1"), RECEIPT)
    assert mirror.close(10)
    assert ["1"] == ids(exporter)


def test_instrumentations_find_themselves_suppressed_while_the_mirror_sends() -> None:
    keys = [
        context._SUPPRESS_INSTRUMENTATION_KEY,
        context._SUPPRESS_HTTP_INSTRUMENTATION_KEY,
        "suppress_instrumentation",
    ]
    with suppressed():
        assert [True] * 3 == [context.get_value(key) for key in keys]
    assert [None] * 3 == [context.get_value(key) for key in keys]
