"""An OpenTelemetry Collector between a server and Jaeger, with the limits that it has when nobody sets any."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from scripts.build_services import COLLECTOR
from tests.ports import free_ports
from tests.services.jaeger import takes_spans
from tests.services.process import running


@dataclass(frozen=True)
class Collector:
    """A Collector that runs. It takes 4 MiB a message over gRPC and 20 MiB a body over HTTP.

    Attributes:
        otlp_http: URL for an OTLP exporter over HTTP, without `/v1/traces`.
        otlp_grpc: URL for one over gRPC.
        file: all that it has taken, a line of OTLP's JSON for each batch.
        log: what it says.
        pid: its process.
    """

    otlp_http: str
    otlp_grpc: str
    file: Path
    log: Path
    pid: int

    def spans(self) -> list[dict[str, Any]]:
        """All spans in its file so far, in OTLP's JSON. A line that it is writing just now is left out."""
        whole, _, _ = self.file.read_bytes().rpartition(b"\n")
        return [
            span
            for line in whole.decode().splitlines()
            for batch in _batches(line)
            for resource in batch["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]


def _batches(line: str) -> Iterator[dict[str, Any]]:
    """What a line holds. A killed one leaves its last batch torn, or whole and without a newline."""
    position = 0
    while position < len(line):
        try:
            batch, position = json.JSONDecoder().raw_decode(line, position)
        except ValueError:
            position = line.find('{"resourceSpans"', position + 1)
            if position < 0:
                return
        else:
            yield batch


@contextlib.contextmanager
def collector_running(
    directory: Path, *, forward_to: str | None = None, otlp_ports: Sequence[int] = ()
) -> Iterator[Collector]:
    """Run a Collector until the context ends.

    Args:
        directory: an existing folder for its configuration, its log and its file of spans; a second Collector there
            goes on with the file of the first.
        forward_to: URL of an OTLP receiver over gRPC that gets all spans too.
        otlp_ports: where it takes spans, over HTTP and over gRPC; free ones by default.
    """
    http, grpc = otlp_ports or free_ports(2)
    protocols = {"grpc": {"endpoint": f"127.0.0.1:{grpc}"}, "http": {"endpoint": f"127.0.0.1:{http}"}}
    spans = directory / "spans.jsonl"
    exporters: dict[str, Any] = {"file": {"path": str(spans), "append": True, "flush_interval": "50ms"}}
    if forward_to is not None:
        exporters["otlp"] = {"endpoint": forward_to.partition("://")[2], "tls": {"insecure": True}}
    config = {
        "receivers": {"otlp": {"protocols": protocols}},
        "processors": {"batch": {}},
        "exporters": exporters,
        "service": {
            "pipelines": {"traces": {"receivers": ["otlp"], "processors": ["batch"], "exporters": list(exporters)}},
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
        },
    }
    file, log = directory / "collector.yaml", directory / "collector.log"
    file.write_text(yaml.safe_dump(config))
    endpoint = f"http://127.0.0.1:{http}"
    with running([COLLECTOR.program, "--config", file], log=log, ready=lambda: takes_spans(endpoint)) as pid:
        yield Collector(endpoint, f"http://127.0.0.1:{grpc}", spans, log, pid)
