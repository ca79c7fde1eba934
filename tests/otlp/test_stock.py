"""Exporters that `OTEL_TRACES_EXPORTER` names: what is installed under a name, or one line that says nothing is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from otel_gym_otlp import Mirror
from otel_gym_otlp import attributes as names
from tests.otlp.spans import RECEIPT, call_ids, ended
from tests.services.receiver import http_receiver

BY_NAME = """
from otel_gym_otlp import Mirror
from tests.otlp.spans import RECEIPT, ended
mirror = Mirror()
mirror.offer(ended("42"), RECEIPT)
"""


def printed_by(exporter: str) -> Any:
    """What a process prints whose spans go to an exporter of this name; it ends while they wait."""
    variables = {**os.environ, "OTEL_TRACES_EXPORTER": exporter, "OTEL_SERVICE_NAME": "policy"}
    command = [sys.executable, "-c", BY_NAME]
    return json.loads(subprocess.run(command, env=variables, check=True, capture_output=True, timeout=60).stdout)


def test_the_console_gets_spans_too_and_what_waits_at_the_end_of_a_process_goes() -> None:
    printed = printed_by("console")
    assert ("chat m", "42", True) == (
        printed["name"],
        printed["attributes"]["otel_gym.model_call.id"],
        printed["attributes"][names.RECORD_DURABLE],
    )


@pytest.mark.servers  # opentelemetry-exporter-otlp-json-file is not made for the oldest SDK
def test_the_exporter_of_lines_of_otlp_json_gets_spans_where_it_is_installed() -> None:
    [resource] = printed_by("otlp_json_file")["resourceSpans"]
    assert {"key": "service.name", "value": {"stringValue": "policy"}} in resource["resource"]["attributes"]
    [scope] = resource["scopeSpans"]
    [span] = scope["spans"]
    attributes = {item["key"]: item["value"] for item in span["attributes"]}
    assert ("otel_gym", "chat m", {"stringValue": "42"}, {"boolValue": True}) == (
        scope["scope"]["name"],
        span["name"],
        attributes["otel_gym.model_call.id"],
        attributes[names.RECORD_DURABLE],
    )
    assert (16, 8) == (len(bytes.fromhex(span["traceId"])), len(bytes.fromhex(span["spanId"])))


def test_an_exporter_that_nobody_knows_is_said_and_harmless(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with http_receiver() as receiver:
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp,carrier_pigeon")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", receiver.endpoint + "/v1/traces")
        mirror = Mirror()
        mirror.offer(ended("1"), RECEIPT)
        assert mirror.close(10)
        assert ["1"] == call_ids(receiver.spans)
    assert "carrier_pigeon" in caplog.text
