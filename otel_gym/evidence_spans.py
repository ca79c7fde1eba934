"""The ended span of a call, by a `TracerProvider` of our own: the only place that makes one.

Nobody's sampler, limit, environment variable or global provider reaches the evidence. Source: the trace specification,
"Two providers, one span".
"""

from __future__ import annotations

# Each TracerProvider starts threads in a forked child, which hangs there for good if this module came after the
# provider: the lock that it holds while a process forks is then renewed too late (SDK 1.45).
import concurrent.futures.thread  # noqa: F401
import threading
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler
from opentelemetry.trace import SpanKind, Status, StatusCode

from otel_gym._version import __version__
from otel_gym.calls import Call
from otel_gym.collecting import Collection
from otel_gym.semconv import AttributeValue
from otel_gym.span_facts import span_name
from otel_gym.trace_ids import call_span_id
from otel_gym_jsonl import attributes as names
from otel_gym_jsonl import exporter

_NO_CONTEXT = Context()


class EvidenceSpans:
    """Makes the ended span of a call, and the line that its attributes hold.

    Args:
        collection: says whether somebody will send the root spans of rollouts.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._ids = _Ids()
        self._ended = _EndedSpan()
        self._tracer = _provider(ALWAYS_ON, self._ids, self._ended).get_tracer("otel_gym", __version__)
        self._bytes_survive = self._probe({"probe": b"{}"}).get("probe") == b"{}"

    def end(self, call: Call, evidence: dict[str, Any], facts: dict[str, AttributeValue] | None = None) -> ReadableSpan:
        """A span from the call's start to its end, with this evidence; named by these facts, those of its bodies."""
        attributes: dict[str, Any] = evidence if self._bytes_survive else _as_str(evidence)
        ancestry = call.ancestry
        if ancestry is None or facts is None:
            self._ids.set(int(call.model_call_id, 16), call_span_id(call.model_call_id))
            span = self._tracer.start_span(
                call.dialect.name,
                context=_NO_CONTEXT,  # no parent: the evidence owes nothing to what else is traced here
                kind=SpanKind.SERVER,
                attributes=attributes,
                start_time=call.start_time_ns,
            )
        else:
            self._ids.set(ancestry.own.trace_id, ancestry.own.span_id)
            span = self._tracer.start_span(
                span_name(facts),
                context=ancestry.parent_context(self._collection.runs()),
                kind=ancestry.kind,
                attributes=attributes,
                links=ancestry.links,
                start_time=call.start_time_ns,
            )
            category = evidence.get(names.ERROR_CATEGORY)
            if category is not None:
                span.set_status(Status(StatusCode.ERROR, str(category)))
        span.end(call.end_time_ns)
        return self._ended.take()

    def line(self, span: ReadableSpan, evidence: dict[str, Any]) -> bytes:
        """The line of an ended span."""
        canonical = (evidence.get(names.REQUEST), evidence.get(names.RESPONSE))
        return exporter.line(span.attributes or {}, canonical)

    def _probe(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """What this SDK makes of these attributes; older ones decode or drop values that are bytes."""
        self._ids.set(1, 1)
        self._tracer.start_span("probe", context=Context(), attributes=attributes).end()
        return dict(self._ended.take().attributes or {})


class _EndedSpan(SpanProcessor):
    """Gives each ended span to who ended it, on the same thread: stock processors swallow an exporter's failure."""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    def on_end(self, span: ReadableSpan) -> None:
        self._of_thread.span = span

    def take(self) -> ReadableSpan:
        span: ReadableSpan = self._of_thread.span
        del self._of_thread.span
        return span


class _Ids(IdGenerator):
    """Gives the ids that were set on this thread. The SDK's own draws them from a state that forked workers share."""

    def __init__(self) -> None:
        self._next = threading.local()

    def set(self, trace_id: int, span_id: int) -> None:
        self._next.trace_id = trace_id
        self._next.span_id = span_id

    def generate_trace_id(self) -> int:
        trace_id: int = self._next.trace_id
        return trace_id

    def generate_span_id(self) -> int:
        span_id: int = self._next.span_id
        return span_id


def standard_sampler() -> Sampler:
    """The sampler that the standard variables name."""
    return _provider().sampler


def _provider(
    sampler: Sampler | None = None, ids: IdGenerator | None = None, processor: SpanProcessor | None = None
) -> TracerProvider:
    """A provider without limits; without a sampler it has that of the standard variables."""
    unset = SpanLimits.UNSET
    provider = TracerProvider(
        sampler=sampler,
        resource=Resource({}),
        shutdown_on_exit=False,
        id_generator=ids,
        span_limits=SpanLimits(
            max_attributes=unset,
            max_events=unset,
            max_links=unset,
            max_span_attributes=unset,
            max_event_attributes=unset,
            max_link_attributes=unset,
            max_attribute_length=unset,
            max_span_attribute_length=unset,
        ),
    )
    provider._disabled = False  # OTEL_SDK_DISABLED switches telemetry off, and this is evidence
    if processor is not None:
        provider.add_span_processor(processor)
    return provider


def _as_str(evidence: dict[str, Any]) -> dict[str, Any]:
    return {key: str(value, "utf-8") if isinstance(value, bytes) else value for key, value in evidence.items()}
