"""The stock exporters, loaded when they are first needed: they are optional, and heavy."""

from __future__ import annotations

import logging
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

logger = logging.getLogger(__name__)

THREAD_NAME = "otel-gym-mirror"

INSTALL = {"http/protobuf": "pip install 'otel-gym[otlp]'", "grpc": "pip install 'otel-gym[otlp-grpc]'"}
_MODULES = {
    "http/protobuf": "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "grpc": "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
}
_GROUP = "opentelemetry_traces_exporter"
_PROTOCOL_OF_NAME = {"otlp_proto_http": "http/protobuf", "otlp_proto_grpc": "grpc"}


class MissingExporterError(ImportError):
    """An exporter that is not installed, or cannot be loaded; says what to do."""


def otlp_module(protocol: str) -> Any:
    """The module with the stock `OTLPSpanExporter` of this protocol.

    Raises:
        MissingExporterError: it is not installed.
    """
    try:
        return import_module(_MODULES[protocol])
    except ImportError as exc:
        raise MissingExporterError(
            f"the OTLP exporter for {protocol} is not there ({exc}): {INSTALL[protocol]}"
        ) from exc


def protocol_of(name: str, by_default: str) -> str | None:
    """The OTLP protocol that a name in `OTEL_TRACES_EXPORTER` means; None when it means another exporter."""
    return by_default if name == "otlp" else _PROTOCOL_OF_NAME.get(name)


def exporter_class(name: str) -> Any:
    """The span exporter that stands under this name in the entry points of what is installed.

    Raises:
        MissingExporterError: none, or it cannot be loaded.
    """
    found = list(entry_points(group=_GROUP, name=name))
    if not found:
        raise MissingExporterError(f"no span exporter is installed under the name {name!r} of OTEL_TRACES_EXPORTER")
    try:
        return found[0].load()
    except Exception as exc:
        raise MissingExporterError(f"the span exporter {name!r} cannot be loaded: {exc}") from exc


class _OurThreadsAreQuiet(logging.Filter):
    """The stock exporters log each failed request, some with what they could not encode; the mirror says it once."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.threadName != THREAD_NAME


_filter = _OurThreadsAreQuiet()


def quiet(logger_name: str) -> None:
    """Keep what this logger says on the mirror's threads to ourselves."""
    logging.getLogger(logger_name).addFilter(_filter)
