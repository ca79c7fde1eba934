"""Senders that hand SDK spans on: to the process's own TracerProvider, or to any other span exporter.

Copies go to the provider's processors as ended spans: they batch, export and drop by their own rules. Instrumentation
is not suppressed for them here: some (Logfire) take a suppressed context for "do not export".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanLimits, SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.trace import Link, Status, StatusCode

from otel_gym_otlp.copies import LightSpan, size
from otel_gym_otlp.late_exporter import LateExporter
from otel_gym_otlp.limits import of_limits, standard_limits
from otel_gym_otlp.otlp_sender import resource
from otel_gym_otlp.outcome import SENT, Fate, Outcome
from otel_gym_otlp.suppression import suppressed

logger = logging.getLogger(__name__)

_FLUSH_BYTES = 256 * 1024  # a batch processor counts spans, not bytes: above this it is told to send before more comes
_FLUSH_MILLISECONDS = 10_000
_FLUSH_AFTER_SECONDS = 0.5  # a batch processor keeps spans for five seconds by default, and servers get killed
_exporting: list[Any] = [()]  # the processors, as a provider has them, of which one exports
_HOLDS_EXPORTER = ("span_exporter", "_exporter", "_batch_processor")


def global_provider() -> Any:
    """The process's own TracerProvider if it is the SDK's and has a span processor that exports, else None.

    Only looked at: asking the API for it could set one, by an environment variable, before the user does.
    """
    provider = set_provider()
    if provider is None:
        return None
    processors = provider._active_span_processor._span_processors
    if processors is not _exporting[0]:  # asked with each call: looked at when one was added
        if not any(map(_exports, processors)):
            return None
        _exporting[0] = processors
    return provider


def set_provider() -> Any:
    """The process's own TracerProvider if it is the SDK's and has span processors, of whatever kind, else None."""
    provider = getattr(trace, "_TRACER_PROVIDER", None)
    if provider is not None and not hasattr(provider, "_active_span_processor"):
        provider = getattr(provider, "provider", None)  # Logfire's stands before the SDK's
    processor = getattr(provider, "_active_span_processor", None)
    return provider if getattr(processor, "_span_processors", None) else None


def _exports(processor: Any) -> bool:
    """Whether ended spans may go anywhere from it: not from one that only adds attributes when a span starts."""
    inner = getattr(processor, "_span_processors", None)
    if inner is not None:
        return any(map(_exports, inner))
    if any(hasattr(processor, name) for name in _HOLDS_EXPORTER):
        return True
    on_end = getattr(processor, "on_end", None)
    function = getattr(on_end, "__func__", on_end)
    if function is None or function is SpanProcessor.on_end:
        return False
    code = getattr(function, "__code__", None)
    return code is None or bool(code.co_names or code.co_freevars)  # one that names nothing does nothing


def _keeps(processor: Any) -> bool:
    """Whether ended spans may wait in it."""
    inner = getattr(processor, "_span_processors", None)
    if inner is not None:
        return any(map(_keeps, inner))
    return _exports(processor) and not isinstance(processor, SimpleSpanProcessor)


def readable(span: LightSpan, attributes: dict[str, Any], of: Resource) -> ReadableSpan:
    """An ended span of the SDK, as its processors and exporters take it."""
    code, description = span.status
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=of,
        attributes=attributes,
        events=[Event(name, item, time_ns) for name, time_ns, item in span.events],
        links=[Link(context, item) for context, item in span.links],
        kind=span.kind,
        status=Status(StatusCode(code), description if code == StatusCode.ERROR.value else None),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=span.scope,
    )


class ProviderSender:
    """Hands copies to the span processors of the global TracerProvider."""

    max_span_bytes = 3_500_000  # whatever its exporter is, it sends a batch whole or not at all

    @property
    def flush_after_s(self) -> float | None:
        provider = global_provider()
        keeps = provider is not None and _keeps(provider._active_span_processor)
        return _FLUSH_AFTER_SECONDS if keeps else None

    def wanted(self) -> bool:
        return global_provider() is not None

    def load(self) -> None:
        pass

    def prepare(self) -> None:
        pass

    def limits(self) -> tuple[int | None, int | None]:
        limits = getattr(global_provider(), "_span_limits", None)
        return of_limits(limits) if isinstance(limits, SpanLimits) else standard_limits()

    def pack(self, span: LightSpan, attributes: dict[str, Any]) -> tuple[ReadableSpan, int]:
        return readable(span, attributes, global_provider().resource), span.size + size(attributes)

    def send(self, packed: Sequence[ReadableSpan]) -> Outcome:
        provider = global_provider()
        if provider is None:
            return Outcome(Fate.BAD, "the process's tracer provider is gone")
        processor = provider._active_span_processor
        total = 0
        for span in packed:
            try:
                processor.on_end(span)
            except Exception as exc:  # noqa: BLE001  a processor of somebody's
                logger.debug("otel-gym: a span processor raised: %s", type(exc).__name__)
            total += size(span.attributes or {})
        if total > _FLUSH_BYTES:
            self.flush()
        return SENT

    def flush(self) -> None:
        provider = global_provider()
        if provider is not None:
            try:
                provider._active_span_processor.force_flush(_FLUSH_MILLISECONDS)
            except Exception as exc:  # noqa: BLE001  a processor of somebody's
                logger.debug("otel-gym: a span processor raised: %s", type(exc).__name__)

    def abandon(self) -> None:
        pass

    def close(self) -> None:
        pass


class ExporterSender(LateExporter):
    """Sends by any span exporter: `console`, `otlp_json_file`, or what else is installed.

    Args:
        find: gives the exporter's class, loaded.
    """

    max_span_bytes = 16_000_000

    def __init__(self, find: Callable[[], Any], by_default: Mapping[str, str]) -> None:
        super().__init__(by_default)
        self._find = find

    def load_modules(self) -> Any:
        return self._find()

    def open(self) -> Any:
        return self._find()()

    def pack(self, span: LightSpan, attributes: dict[str, Any]) -> tuple[ReadableSpan, int]:
        if self._resource is None:
            self._resource = resource(self._by_default)
        return readable(span, attributes, self._resource), span.size + size(attributes)

    def send(self, packed: Sequence[ReadableSpan]) -> Outcome:
        self.prepare()
        if self._exporter is None:
            return Outcome(Fate.BAD, "no exporter")
        try:
            with suppressed():
                result = self._exporter.export(packed)
        except Exception as exc:  # noqa: BLE001  of somebody's exporter
            return Outcome(Fate.UNCERTAIN, f"{type(exc).__name__} in the exporter")
        return SENT if result is SpanExportResult.SUCCESS else Outcome(Fate.UNCERTAIN, "the exporter failed")

    def abandon(self) -> None:
        self._exporter = None
        self._resource = None
