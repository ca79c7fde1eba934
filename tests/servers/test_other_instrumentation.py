"""Beside OpenTelemetry's own instrumentation of a server: its span and ours are both there, once, in one tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_gym_jsonl import CaptureStore
from tests.servers.keyed import CHAT, KEY
from tests.servers.processes import listening
from tests.servers.test_zero_code import SERVERS, launcher
from tests.servers.wire import exchange, request
from tests.services.receiver import Receiver, http_receiver, plain

pytestmark = pytest.mark.servers

ROUTE = f"POST {CHAT}"
NO_CONTRIB = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "asgi,fastapi"}
# Framework and variables: who stands inside of us, since they are middleware, and who outside.
INSIDE = {
    "contrib's fastapi": ("fastapi", {}),
    "contrib's fastapi, in the code as well": ("fastapi", {"CONTRIB": "on"}),
    "contrib's asgi": ("starlette", {"CONTRIB": "on"}),
}
FASTAPIS_OWN = ("fastapi", NO_CONTRIB)


def spans_of_one_call(receiver: Receiver, directory: Path, framework: str, variables: dict[str, str]) -> list[Span]:
    """What a server sends of one call, started by two launchers at once, which make one record."""
    before, environment = launcher("opentelemetry-instrument", directory / "captures")
    before = [*launcher("otel-gym run", directory / "captures")[0], *before]
    environment |= {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        **variables,
    }
    command = [part.format(framework=framework) for part in SERVERS["uvicorn"]]
    with listening(command, directory / "log", environment, before) as port:
        asked = request(f"/ng-rollout/0-0{CHAT}", "plain", f"Authorization: {KEY}")
        assert exchange(port, [asked]).startswith(b"HTTP/1.1 200")
    # The server has ended, and both providers and the mirror have sent what they had.
    [record] = CaptureStore(directory / "captures").read("0-0")
    spans = receiver.spans
    assert 1 == sum(span.span_id.hex() == record["model_call_id"][:16] for span in spans)
    return spans


def named(spans: list[Span], name: str) -> Span:
    [span] = [span for span in spans if span.name == name]
    return span


@pytest.mark.parametrize(("framework", "variables"), INSIDE.values(), ids=INSIDE)
def test_a_span_from_inside_of_us_is_the_calls_child_and_has_the_applications_route(
    framework: str, variables: dict[str, str], tmp_path: Path
) -> None:
    with http_receiver() as receiver:
        spans = spans_of_one_call(receiver, tmp_path, framework, variables)
    call, server = named(spans, "chat m"), named(spans, ROUTE)
    assert (call.trace_id, call.span_id) == (server.trace_id, server.parent_span_id)
    assert (b"", []) == (call.parent_span_id, list(call.links))
    assert Span.SPAN_KIND_SERVER == call.kind
    assert CHAT == plain(server.attributes)["http.target"]
    assert {call.trace_id} == {span.trace_id for span in spans}


@pytest.mark.parametrize("foreign_trace", ["link", "parent"])
def test_fastapis_own_span_is_outside_of_us_and_the_call_says_so(foreign_trace: str, tmp_path: Path) -> None:
    """It begins a trace; what FastAPI traces of the route is below the call in both ways."""
    framework, variables = FASTAPIS_OWN
    with http_receiver() as receiver:
        variables = {**variables, "OTEL_GYM_FOREIGN_TRACE": foreign_trace}
        spans = spans_of_one_call(receiver, tmp_path, framework, variables)
    call, server, endpoint = named(spans, "chat m"), named(spans, ROUTE), named(spans, "fastapi.endpoint")
    assert (b"", Span.SPAN_KIND_SERVER) == (server.parent_span_id, server.kind)
    assert (call.trace_id, call.span_id) == (endpoint.trace_id, endpoint.parent_span_id)
    if foreign_trace == "parent":
        assert (server.trace_id, server.span_id, []) == (call.trace_id, call.parent_span_id, list(call.links))
        assert Span.SPAN_KIND_INTERNAL == call.kind
    else:
        [link] = call.links
        assert (b"", server.trace_id, server.span_id) == (call.parent_span_id, link.trace_id, link.span_id)
        assert (True, Span.SPAN_KIND_SERVER) == (call.trace_id != server.trace_id, call.kind)
