"""Ended evidence spans, as the core makes them, and what is sent of them."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  (before any provider: see otel_gym/evidence_spans.py)
import threading
from collections.abc import Mapping
from typing import Any

from opentelemetry.context import Context
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SentSpan
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanKind, Status, StatusCode

from otel_gym_otlp import Receipt
from otel_gym_otlp.copies import Content, LightSpan, bare_copy, describe

RECEIPT = Receipt(durable=True, file="r0.capture.jsonl", bytes=1234, sha256="ab" * 32)
CALL_ID = "otel_gym.model_call.id"


class _Ended(SpanProcessor):
    def __init__(self) -> None:
        self._of_thread = threading.local()

    def on_end(self, span: ReadableSpan) -> None:
        self._of_thread.span = span

    @property
    def span(self) -> ReadableSpan:
        ended: ReadableSpan = self._of_thread.span
        return ended


_ended = _Ended()
_unset = SpanLimits.UNSET
_provider = TracerProvider(
    sampler=ALWAYS_ON,
    resource=Resource({"service.name": "evidence"}),
    shutdown_on_exit=False,
    span_limits=SpanLimits(
        max_attributes=_unset,
        max_events=_unset,
        max_links=_unset,
        max_span_attributes=_unset,
        max_event_attributes=_unset,
        max_link_attributes=_unset,
        max_attribute_length=_unset,
        max_span_attribute_length=_unset,
    ),
)
_provider.add_span_processor(_ended)
_tracer = _provider.get_tracer("otel_gym", "0.1.0")


def ended(call_id: str = "0", *, error: str | None = None, **attributes: Any) -> ReadableSpan:
    """An ended evidence span of one call; `__` in a keyword stands for a dot."""
    return ended_with({name.replace("__", "."): value for name, value in attributes.items()}, call_id, error=error)


def ended_with(attributes: Mapping[str, Any], call_id: str = "0", *, error: str | None = None) -> ReadableSpan:
    """The same with attributes whose names are no keywords."""
    evidence = {
        "otel_gym.evidence.rollout_id": "r0",
        "otel_gym.evidence.model_call_id": call_id,
        "otel_gym.evidence.request": '{"secret": "of the evidence"}',
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        CALL_ID: call_id,
    }
    span = _tracer.start_span(
        "chat m",
        context=Context(),
        kind=SpanKind.SERVER,
        attributes={**evidence, **attributes},
        start_time=1_700_000_000_000_000_000,
    )
    if error is not None:
        span.set_attribute("error.type", error)
        span.set_status(Status(StatusCode.ERROR, error))
    span.end(1_700_000_001_000_000_000)
    return _ended.span


def message(text: str) -> str:
    """The JSON text of `gen_ai.input.messages` with one message."""
    import json

    return json.dumps([{"role": "user", "parts": [{"type": "text", "content": text}]}])


def call_ids(spans: list[SentSpan]) -> list[str]:
    """Which calls they are of."""
    return [field.value.string_value for span in spans for field in span.attributes if field.key == CALL_ID]


def light_copy(span: ReadableSpan) -> tuple[LightSpan, Content]:
    """What a mirror makes of a span: the copy, and apart from it the content."""
    copy = bare_copy(span)
    return copy, describe(copy, RECEIPT, span.attributes or {})
