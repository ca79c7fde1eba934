from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from otel_gym_otlp import encodable, wire

TEXT = st.text(max_size=200)
SCALAR = st.one_of(TEXT, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
ATTRIBUTES = st.dictionaries(TEXT, st.one_of(SCALAR, st.lists(SCALAR, max_size=4)), max_size=6)
CONTEXT = st.builds(
    SpanContext,
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
    st.booleans(),
    st.just(TraceFlags(1)),
    st.sampled_from([TraceState(), TraceState([("a", "1"), ("b", "x y")])]),
)
NANOSECONDS = st.integers(0, 2**63)
SPAN = st.builds(
    ReadableSpan,
    name=TEXT,
    context=CONTEXT,
    parent=st.one_of(st.none(), CONTEXT),
    resource=st.just(Resource({"service.name": "s", "n": 3}, "https://schema/1")),
    attributes=ATTRIBUTES,
    events=st.lists(st.builds(Event, TEXT, ATTRIBUTES, NANOSECONDS), max_size=2),
    links=st.lists(st.builds(Link, CONTEXT, ATTRIBUTES), max_size=2),
    kind=st.sampled_from(SpanKind),
    status=st.sampled_from([Status(), Status(StatusCode.OK), Status(StatusCode.ERROR, "timeout")]),
    start_time=NANOSECONDS,
    end_time=NANOSECONDS,
    instrumentation_scope=st.just(InstrumentationScope("otel_gym", "0.1.0")),
)


def ours(span: ReadableSpan) -> bytes:
    context = span.get_span_context()
    assert context is not None
    return wire.span(
        span.name,
        context,
        span.parent,
        span.kind.value,
        span.start_time or 0,
        span.end_time or 0,
        span.attributes or {},
        [(event.name, event.timestamp, event.attributes or {}) for event in span.events],
        [(link.context, link.attributes or {}) for link in span.links],
        (span.status.status_code.value, span.status.description),
    )


@given(st.lists(SPAN, min_size=1, max_size=3))
def test_what_we_encode_reads_as_what_the_stock_encoder_makes(spans: list[ReadableSpan]) -> None:
    envelope = wire.Envelope(spans[0].resource, spans[0].instrumentation_scope)
    request = ExportTraceServiceRequest.FromString(envelope.request([ours(span) for span in spans]))
    assert encode_spans(spans) == request


@given(st.integers(0, 2**64 - 1))
def test_numbers_of_any_length_are_read_back(number: int) -> None:
    encoded = wire.varint(number)
    assert number == sum((byte & 0x7F) << 7 * position for position, byte in enumerate(encoded))
    assert [True] * (len(encoded) - 1) + [False] == [byte >= 0x80 for byte in encoded]


def test_requests_one_behind_the_other_are_one_request() -> None:
    first, second = (wire.Envelope(Resource({"n": n}), None).request([]) for n in (1, 2))
    assert 2 == len(ExportTraceServiceRequest.FromString(first + second).resource_spans)


ODD: list[tuple[Any, Any]] = [
    ("\ud83d\ude80", "🚀"),
    ("a\ud83d", "a\ufffd"),
    (2**63, str(2**63)),
    (-(2**63), -(2**63)),
    (True, True),
    (b"\xff text", "\ufffd text"),
    (("a", None, "\ud83d"), ["a", "\ufffd"]),
    ({"k": "é"}, '{"k": "é"}'),
    (None, None),
]


def test_odd_values_become_values_that_can_be_encoded() -> None:
    assert [(after, type(after)) for _, after in ODD] == [
        (made, type(made)) for before, _ in ODD for made in [encodable.value(before)]
    ]
    assert {"a": 1, "\ufffd": "x"} == encodable.attributes({"a": 1, "gone": None, "\ud83d": "x"})
