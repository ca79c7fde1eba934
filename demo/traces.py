"""Where the demo's spans go, when somebody is there to take them, and where to look at them then."""

from __future__ import annotations

import contextlib
import os
import socket

from otel_gym.trace_ids import rollout_trace

OTLP_PORT = 4318
ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
JAEGER_PAGE = "http://127.0.0.1:16686"


def destination() -> dict[str, str]:
    """The variables that send spans: to where the user's environment says, else to a Jaeger on the standard port.

    Empty when nobody is there.
    """
    said = os.environ.get(ENDPOINT_VARIABLE)
    if not said and not _listens(OTLP_PORT):
        return {}
    return {ENDPOINT_VARIABLE: said or f"http://127.0.0.1:{OTLP_PORT}", "OTEL_SERVICE_NAME": "otel-gym-demo"}


def trace_address(run_id: str, rollout_id: str) -> str:
    """The rollout's trace in Jaeger's page; where the user's own backend has it, its id."""
    trace_id = f"{rollout_trace(run_id, rollout_id).trace_id:032x}"
    return trace_id if os.environ.get(ENDPOINT_VARIABLE) else f"{JAEGER_PAGE}/trace/{trace_id}"


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.5):
        return True
    return False
