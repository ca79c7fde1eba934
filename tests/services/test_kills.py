"""Servers get killed without a word: what they were asked a moment ago is in the backend all the same."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.services.captured import PLAYED, captured_server, span_id
from tests.services.receiver import Protocol, receiver_running

pytestmark = pytest.mark.servers

A_MOMENT_S = 3.0  # three times what is promised, and less than the five seconds that a batch processor keeps spans
OF_ITS_OWN = "tests.services.provider_server:app"


@pytest.mark.parametrize(("app", "protocol"), [(PLAYED, "http"), (PLAYED, "grpc"), (OF_ITS_OWN, "http")])
def test_the_spans_of_a_server_that_is_killed_are_in_the_backend(app: str, protocol: Protocol, tmp_path: Path) -> None:
    with receiver_running(protocol) as receiver:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": receiver.exporter_protocol,
        }
        with captured_server(tmp_path, app, **variables) as server:
            for _ in range(3):
                server.call("0-0")
            time.sleep(A_MOMENT_S)
            server.kill()
            records = server.store.read("0-0")
        assert {span_id(record) for record in records} == {span.span_id.hex() for span in receiver.spans}
        assert 3 == len(records) == len(receiver.spans)
