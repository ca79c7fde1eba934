"""The light copy of an ended span: everything but the evidence, with its content held apart, so that it can be let go.

An ended span is immutable, and shared with whoever reads it: what the writer says of the record goes onto the copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sys import getsizeof
from typing import Any

from opentelemetry.sdk.trace import Event as SdkEvent
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind

from otel_gym_jsonl.attributes import PREFIX as EVIDENCE
from otel_gym_jsonl.attributes import plain
from otel_gym_otlp import attributes as names
from otel_gym_otlp.receipt import Receipt

SPAN_BYTES = 1024
"""What a span without attributes takes in memory, about."""
ATTRIBUTE_BYTES = 128

Content = dict[str, Any]
Event = tuple[str, int, dict[str, Any]]


class LightSpan:
    """What of a span may leave the machine anywhere.

    Attributes:
        size: what it takes in memory, in bytes.
        attributes: without evidence and content; those of the record stand first, the others in their order. None yet
            of a bare copy.
        events: name, time in Unix nanoseconds, attributes without content.
    """

    __slots__ = (
        "attributes",
        "context",
        "end_ns",
        "events",
        "kind",
        "links",
        "name",
        "parent",
        "scope",
        "size",
        "start_ns",
        "status",
    )

    def __init__(self, span: ReadableSpan, context: SpanContext) -> None:
        self.name: str = span.name
        self.context = _ids(context)
        self.parent: SpanContext | None = span.parent
        self.kind: SpanKind = span.kind
        self.start_ns: int = span.start_time or 0
        self.end_ns: int = span.end_time or self.start_ns
        self.scope: InstrumentationScope | None = span.instrumentation_scope
        self.attributes: dict[str, Any] = {}
        links, events = span.links, span.events
        self.links: tuple[tuple[SpanContext, Mapping[str, Any]], ...] = (
            tuple((_ids(link.context), link.attributes or {}) for link in links) if links else ()
        )
        self.events: Sequence[Event] = [_light_event(event) for event in events] if events else ()
        status = span.status
        self.status: tuple[int, str | None] = (status.status_code.value, status.description)
        self.size = SPAN_BYTES
        if events:
            self.size += sum(size(event[2]) + ATTRIBUTE_BYTES for event in self.events)
        if links:
            self.size += sum(size(link[1]) + ATTRIBUTE_BYTES for link in self.links)

    def say(self, attributes: dict[str, Any]) -> None:
        """Put these attributes on, once."""
        self.attributes = attributes
        self.size += size(attributes)
        code, description = self.status
        if description and description != attributes.get(names.ERROR_TYPE):  # only the category is no payload
            self.status = code, None


def _ids(context: SpanContext) -> SpanContext:
    """Without the trace state: what a caller's vendors say to each other is a header's text, and may be anything."""
    if not context.trace_state:
        return context
    return SpanContext(context.trace_id, context.span_id, context.is_remote, context.trace_flags)


def _light_event(event: SdkEvent) -> Event:
    attributes = {key: value for key, value in (event.attributes or {}).items() if key not in names.CONTENT}
    return event.name, event.timestamp, attributes


def bare_copy(span: ReadableSpan) -> LightSpan:
    """The copy of an ended span, still without attributes.

    Raises:
        ValueError: the span has no context.
    """
    context = span.get_span_context()
    if context is None:
        raise ValueError("a span without a context cannot be mirrored")
    return LightSpan(span, context)


def describe(copy: LightSpan, receipt: Receipt | None, says: Mapping[str, Any]) -> Content:
    """Put attributes on a bare copy, but for evidence and content; the content, to be held apart from it.

    Touches no payload: strings are handed on, not read.
    """
    attributes = {} if receipt is None else _of_record(receipt)
    content: Content = {}
    for key, value in plain(says).items():
        if key.startswith(EVIDENCE):
            continue
        if key in names.CONTENT:
            content[key] = value
        else:
            attributes[key] = value
    copy.say(attributes)
    return content


def _of_record(receipt: Receipt) -> dict[str, Any]:
    if not receipt.durable:
        return {names.RECORD_DURABLE: False}
    known = {names.RECORD_FILE: receipt.file, names.RECORD_BYTES: receipt.bytes, names.RECORD_SHA256: receipt.sha256}
    return {names.RECORD_DURABLE: True, **{name: value for name, value in known.items() if value is not None}}


def size(attributes: Mapping[str, Any]) -> int:
    """What these attributes take in memory, in bytes; looks at no character."""
    total = ATTRIBUTE_BYTES * len(attributes)
    for value in attributes.values():
        if isinstance(value, (str, bytes)):
            if len(value) > ATTRIBUTE_BYTES // 2:  # a short one is in its attribute's share
                total += getsizeof(value)
        elif isinstance(value, (tuple, list)):
            total += sum(map(getsizeof, value))
    return total
