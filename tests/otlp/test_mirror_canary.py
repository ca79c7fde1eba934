"""With content off, no byte of payload leaves, and none gets into the log."""

from __future__ import annotations

import logging
import secrets

import pytest
from opentelemetry.context import Context
from opentelemetry.trace import Status, StatusCode

from otel_gym_otlp import Mirror, Receipt
from otel_gym_otlp.attributes import CONTENT
from tests.otlp.spans import _ended, _tracer
from tests.services.receiver import Fault, Protocol, receiver_running

BODIES = ("request", "response", "request_raw", "response_raw", "client_session_id", "whatever_else")


def marked(marker: str, kind: int) -> object:
    """The marker in all shapes that a value has."""
    text = f'{{"{marker}": "{marker}"}}'
    return [text, text.encode(), [text, marker], f"\ud83d {marker}"][kind % 4]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("fault", [None, Fault.TOO_LARGE])
def test_a_marker_in_all_payload_is_in_no_byte_that_leaves_nor_in_the_log(
    protocol: Protocol, fault: Fault | None, caplog: pytest.LogCaptureFixture
) -> None:
    marker = secrets.token_hex(16)
    with caplog.at_level(logging.DEBUG), receiver_running(protocol) as receiver:
        receiver.fault = fault
        mirror = Mirror([{"endpoint": receiver.endpoint, "protocol": receiver.exporter_protocol}])
        for call in range(20):
            span = _tracer.start_span("chat m", context=Context())
            for name in BODIES:
                span.set_attribute(f"otel_gym.evidence.{name}", marked(marker, call))  # type: ignore[arg-type]
            for name in sorted(CONTENT):
                span.set_attribute(name, marked(marker, call))  # type: ignore[arg-type]
            span.record_exception(ValueError(marker))
            span.set_attribute("error.type", "exception")
            span.set_status(Status(StatusCode.ERROR, f"ValueError: {marker}"))
            span.end()
            mirror.offer(_ended.span, Receipt(durable=True, file="r0.capture.jsonl", bytes=1, sha256="00"))
        assert mirror.close(20)
        assert receiver.requests
        everything = b"".join(request.everything() for request in receiver.requests)
        assert fault is not None or 20 == len(receiver.spans)
    assert marker.encode() not in everything
    ours = [record for record in caplog.records if not record.name.startswith("opentelemetry.attributes")]
    assert marker not in "\n".join(record.getMessage() + (record.exc_text or "") for record in ours)
