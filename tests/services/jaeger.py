"""Jaeger, the real one, with its traces in memory: started, spoken to, and read back through its query API."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import yaml

from scripts.build_services import JAEGER
from tests.ports import free_ports
from tests.services.process import running

PATIENCE_S = 30.0

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class JaegerSpan:
    """One span as Jaeger's own API gives it.

    Attributes:
        parent_id: of the span that it is a child of, in its own trace; None for a root.
        links: trace id and span id of each other reference.
        start_us: since the epoch, in µs.
        tags: attributes and what Jaeger makes of kind, status and scope (`span.kind`, `error`, `otel.status_code`, …).
        types: of the tags, in Jaeger's words: `string`, `bool`, `int64`, `float64`, `binary`.
        events: each with its fields.
        resource: attributes of the process, without `service.name`.
        warnings: Jaeger's doubts about the span (a parent that it does not know, a clock that it does not trust).
    """

    trace_id: str
    span_id: str
    name: str
    service: str
    parent_id: str | None
    links: tuple[tuple[str, str], ...]
    start_us: int
    duration_us: int
    tags: Mapping[str, Any]
    types: Mapping[str, str]
    events: tuple[Mapping[str, Any], ...]
    resource: Mapping[str, Any]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, span: Mapping[str, Any], process: Mapping[str, Any]) -> JaegerSpan:
        """The span of Jaeger's JSON, and the process that it names."""
        references = span.get("references") or []
        parents = [r["spanID"] for r in references if r["refType"] == "CHILD_OF" and r["traceID"] == span["traceID"]]
        others = [(_trace_id(r), r["spanID"]) for r in references if r["spanID"] not in parents]
        return cls(
            trace_id=_trace_id(span),
            span_id=span["spanID"],
            name=span["operationName"],
            service=process["serviceName"],
            parent_id=parents[0] if parents else None,
            links=tuple(others),
            start_us=span["startTime"],
            duration_us=span["duration"],
            tags={tag["key"]: tag["value"] for tag in span["tags"]},
            types={tag["key"]: tag["type"] for tag in span["tags"]},
            events=tuple({field["key"]: field["value"] for field in log["fields"]} for log in span["logs"] or []),
            resource={tag["key"]: tag["value"] for tag in process.get("tags") or []},
            warnings=tuple(span.get("warnings") or ()),
        )


@dataclass(frozen=True)
class Jaeger:
    """A Jaeger that runs.

    Attributes:
        query: URL of its API.
        otlp_http: URL for an OTLP exporter over HTTP, without `/v1/traces`.
        otlp_grpc: URL for one over gRPC.
        log: what it says.
        pid: its process.
    """

    query: str
    otlp_http: str
    otlp_grpc: str
    log: Path
    pid: int

    def services(self) -> list[str]:
        """The names of all services that have sent a span, in order."""
        return sorted(self._get("/api/services")["data"] or [])

    def trace(self, trace_id: str) -> list[JaegerSpan]:
        """The spans of a trace in the order of their start; none when Jaeger does not know it."""
        found = self._get(f"/api/traces/{trace_id}")["data"] or []
        spans = [
            JaegerSpan.of(span, trace["processes"][span["processID"]]) for trace in found for span in trace["spans"]
        ]
        return sorted(spans, key=lambda span: (span.start_us, span.span_id))

    def wait_for(self, trace_id: str, count: int = 1) -> list[JaegerSpan]:
        """The spans of a trace, as soon as there are so many of them.

        Raises:
            TimeoutError: there were fewer after 30 s.
        """
        return _wait_for(lambda: self.trace(trace_id), count, f"spans of trace {trace_id}")

    def otlp(self, trace_id: str) -> list[dict[str, Any]]:
        """The same spans in OTLP's JSON: `traceId`, `attributes`, `status`, `links`, …; none when it is not known."""
        return [
            span
            for resource in self._get(f"/api/v3/traces/{trace_id}").get("result", {}).get("resourceSpans", [])
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]

    def otlp_when_there(self, trace_id: str, count: int = 1) -> list[dict[str, Any]]:
        """The same, as soon as there are so many of them.

        Raises:
            TimeoutError: there were fewer after 30 s.
        """
        return _wait_for(lambda: self.otlp(trace_id), count, f"spans of trace {trace_id}")

    def find(self, service: str, tags: Mapping[str, str]) -> set[str]:
        """Ids of the traces that hold a span of this service with these attributes, at most 1,000."""
        asked = {"service": service, "tags": json.dumps(tags), "limit": "1000", "lookback": "1h"}
        return {trace["traceID"] for trace in self._get("/api/traces", asked)["data"] or []}

    def _get(self, path: str, asked: Mapping[str, str] | None = None) -> dict[str, Any]:
        answer = httpx.get(f"{self.query}{path}", params=asked, timeout=PATIENCE_S, trust_env=False)
        if answer.status_code == 404:  # a trace that it does not know
            return {"data": None}
        value: dict[str, Any] = answer.raise_for_status().json()
        return value


def _trace_id(named: Mapping[str, Any]) -> str:
    """All 32 digits: Jaeger leaves the first half out where it is zero."""
    given: str = named["traceID"]
    return given.zfill(32)


def attributes(span: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a span of OTLP's JSON as plain values: a JSON string for an integer becomes an `int`."""
    return {item["key"]: _plain(item["value"]) for item in span.get("attributes", [])}


def _plain(value: Mapping[str, Any]) -> Any:
    ((kind, held),) = value.items()
    if kind == "intValue":
        return int(held)
    if kind == "arrayValue":
        return [_plain(item) for item in held.get("values", [])]
    return held


@contextlib.contextmanager
def jaeger_running(
    directory: Path, *, otlp_ports: Sequence[int] = (), query_ports: Sequence[int] = ()
) -> Iterator[Jaeger]:
    """Run a Jaeger of its own, with nothing in it, until the context ends.

    Args:
        directory: an existing folder for its configuration and its log.
        otlp_ports: where it takes spans, over HTTP and over gRPC; free ones by default.
        query_ports: where it is asked for them, likewise.
    """
    http, grpc = otlp_ports or free_ports(2)
    query_http, query_grpc = (f"127.0.0.1:{port}" for port in query_ports or free_ports(2))
    # What a Collector before it has taken shall not be lost for being too large here.
    over_grpc = {"endpoint": f"127.0.0.1:{grpc}", "max_recv_msg_size_mib": 64}
    protocols = {"grpc": over_grpc, "http": {"endpoint": f"127.0.0.1:{http}"}}
    # It would trace itself to the standard port, and at its end wait 10 s for somebody there.
    query = {
        "storage": {"traces": "main"},
        "enable_tracing": False,
        "http": {"endpoint": query_http},
        "grpc": {"endpoint": query_grpc},
    }
    pipeline = {"receivers": ["otlp"], "processors": ["batch"], "exporters": ["jaeger_storage_exporter"]}
    config = {
        "service": {
            "extensions": ["jaeger_storage", "jaeger_query"],
            "pipelines": {"traces": pipeline},
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
        },
        "extensions": {
            "jaeger_query": query,
            "jaeger_storage": {"backends": {"main": {"memory": {"max_traces": 100_000}}}},
        },
        "receivers": {"otlp": {"protocols": protocols}},
        "processors": {"batch": {"timeout": "50ms"}},
        "exporters": {"jaeger_storage_exporter": {"trace_storage": "main"}},
    }
    file, log = directory / "jaeger.yaml", directory / "jaeger.log"
    file.write_text(yaml.safe_dump(config))
    endpoint = f"http://127.0.0.1:{http}"

    def ready() -> bool:
        return takes_spans(endpoint) and answers(f"http://{query_http}/api/services")

    with running([JAEGER.program, "--config", file], log=log, ready=ready) as pid:
        yield Jaeger(f"http://{query_http}", endpoint, f"http://127.0.0.1:{grpc}", log, pid)


def takes_spans(otlp_http: str) -> bool:
    """Whether an OTLP receiver is there: it takes a request without spans."""
    try:
        return httpx.post(f"{otlp_http}/v1/traces", json={}, timeout=5, trust_env=False).is_success
    except httpx.TransportError:
        return False


def answers(url: str) -> bool:
    """Whether a GET has success there."""
    try:
        return httpx.get(url, timeout=5, trust_env=False).is_success
    except httpx.TransportError:
        return False


def _wait_for(look: Callable[[], list[_Found]], count: int, what: str) -> list[_Found]:
    give_up = time.monotonic() + PATIENCE_S
    while len(found := look()) < count:
        if time.monotonic() > give_up:
            raise TimeoutError(f"{len(found)} {what}, not {count}, within {PATIENCE_S:g} s")
        time.sleep(0.05)
    return found
