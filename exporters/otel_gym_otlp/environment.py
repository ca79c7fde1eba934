"""The standard OpenTelemetry variables that decide about the mirror; the OTLP exporters read theirs themselves.

The only module of this package that reads the environment.
"""

from __future__ import annotations

import logging
import os

logger = logging.getLogger(__name__)

CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CONTENT = {"span_only", "event_only", "span_and_event"}
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")


def _first(*names: str) -> str:
    return next((value for name in names if (value := os.environ.get(name, "").strip())), "")


def sdk_disabled() -> bool:
    """`OTEL_SDK_DISABLED`: no telemetry at all."""
    return _first("OTEL_SDK_DISABLED").lower() == "true"


def content_wanted() -> bool:
    """Whether the standard variable for message content asks for it."""
    return _first(CONTENT_VARIABLE).lower() in _CONTENT


def trace_exporters() -> list[str]:
    """The names in `OTEL_TRACES_EXPORTER`; without it `otlp` when an endpoint is given; no name for `none`."""
    said = _first("OTEL_TRACES_EXPORTER")
    if not said:
        return ["otlp"] if _first(*_ENDPOINTS) else []
    names = list(dict.fromkeys(name.strip() for name in said.split(",")))
    return [name for name in names if name and name != "none"]


def silenced() -> bool:
    """Whether `OTEL_TRACES_EXPORTER` says `none`, alone."""
    return _first("OTEL_TRACES_EXPORTER") == "none"


def protocol() -> str:
    """`http/protobuf` or `grpc`; the former for what this package does not speak."""
    said = _first(*_PROTOCOLS).lower()
    if said in ("", "http/protobuf", "grpc"):
        return said or "http/protobuf"
    logger.warning("otel-gym: OTLP protocol %r is not spoken here: http/protobuf is; allowed is also grpc", said)
    return "http/protobuf"


def headers() -> dict[str, str]:
    """What the standard exporter sends with each request of spans, such as a key; names in lower case."""
    from opentelemetry.util.re import parse_env_headers

    return dict(parse_env_headers(_first(*_HEADERS), liberal=True))


def endpoint(of_protocol: str) -> str:
    """Where the standard exporter sends to: for messages only, the exporter finds out by itself."""
    return _first(*_ENDPOINTS) or f"http://localhost:{4317 if of_protocol == 'grpc' else 4318}"
