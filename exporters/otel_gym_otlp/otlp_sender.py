"""What both OTLP transports share: packing, the resource, an exporter that is opened anew after a fork."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_gym_otlp import wire
from otel_gym_otlp.copies import LightSpan
from otel_gym_otlp.late_exporter import LateExporter
from otel_gym_otlp.outcome import Fate, Outcome
from otel_gym_otlp.suppression import suppressed

_of_parents: list[Any] = []  # closing in a child what the parent has open may hang: it is kept, and never touched


class OtlpSender(LateExporter):
    """Sends OTLP requests. Subclasses say how to `post` one through the exporter, too."""

    max_span_bytes: int

    def __init__(self, by_default: Mapping[str, str]) -> None:
        super().__init__(by_default)
        self._envelopes: dict[InstrumentationScope | None, wire.Envelope] = {}

    def post(self, exporter: Any, request: bytes) -> Outcome:
        """Send these bytes, an `ExportTraceServiceRequest`."""
        raise NotImplementedError

    def pack(
        self, span: LightSpan, attributes: dict[str, Any]
    ) -> tuple[tuple[InstrumentationScope | None, bytes], int]:
        data = wire.span(
            span.name,
            span.context,
            span.parent,
            span.kind.value,
            span.start_ns,
            span.end_ns,
            attributes,
            span.events,
            span.links,
            span.status,
        )
        return (span.scope, data), len(data)

    def send(self, packed: Sequence[tuple[InstrumentationScope | None, bytes]]) -> Outcome:
        self.prepare()
        if self._exporter is None:
            return Outcome(Fate.BAD, "no exporter")
        request = b"".join(
            self._envelope(scope).request([data for _, data in group])
            for scope, group in groupby(packed, lambda item: item[0])
        )
        try:
            with suppressed():
                return self.post(self._exporter, request)
        except Exception as exc:  # noqa: BLE001  a fault of ours or of the exporter must not end the thread
            return Outcome(Fate.UNCERTAIN, f"{type(exc).__name__} while sending")

    def _envelope(self, scope: InstrumentationScope | None) -> wire.Envelope:
        envelope = self._envelopes.get(scope)
        if envelope is None:
            if self._resource is None:
                self._resource = resource(self._by_default)
            envelope = self._envelopes[scope] = wire.Envelope(self._resource, scope)
        return envelope

    def abandon(self) -> None:
        if self._exporter is not None:
            _of_parents.append(self._exporter)
        self._exporter = None
        self._resource = None  # may name the process
        self._envelopes = {}


def resource(by_default: Mapping[str, str]) -> Resource:
    """By the standard variables (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`); these where they say nothing."""
    said = OTELResourceDetector().detect()
    try:
        made = Resource.create({})
    except RuntimeError:  # the process is ending: no threads for the detectors
        made = said
    lacking = {name: value for name, value in by_default.items() if name not in said.attributes}
    if not str(made.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        lacking.pop(SERVICE_NAME, None)  # a detector knows it
    return made.merge(Resource(lacking)) if lacking else made
