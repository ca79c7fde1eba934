"""Beside OpenTelemetry's own instrumentation of a server: its span and ours are both there, once, in one tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_gym_jsonl import CaptureStore, aggregate_model_call_metrics
from tests.servers.keyed import CHAT, KEY
from tests.servers.processes import Served, listening
from tests.servers.test_zero_code import SERVERS, launcher
from tests.servers.wire import exchange, request
from tests.services.receiver import Receiver, http_receiver, plain

pytestmark = pytest.mark.servers

ROUTE = f"POST {CHAT}"
NO_CONTRIB = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "asgi,fastapi,openai"}
# Framework and variables: who stands inside of us, since they are middleware, and who outside.
INSIDE = {
    "contrib's fastapi": ("fastapi", {}),
    "contrib's fastapi, in the code as well": ("fastapi", {"CONTRIB": "on"}),
    "contrib's asgi": ("starlette", {"CONTRIB": "on"}),
}
FASTAPIS_OWN = ("fastapi", NO_CONTRIB)


def spans_of_one_call(
    receiver: Receiver,
    directory: Path,
    framework: str,
    variables: dict[str, str],
    command: list[str] = SERVERS["uvicorn"],
) -> list[Span]:
    """What a server sends of one call, started by two launchers at once, which make one record."""
    before, environment = launcher("opentelemetry-instrument", directory / "captures")
    before = [*launcher("otel-gym run", directory / "captures")[0], *before]
    environment |= {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        **variables,
    }
    command = [part.format(framework=framework) for part in command]
    with listening(command, directory / "log", environment, before) as port:
        asked = request(f"/ng-rollout/0-0{CHAT}", "plain", f"Authorization: {KEY}")
        assert exchange(port, [asked]).startswith(b"HTTP/1.1 200")
    # The server has ended, and both providers and the mirror have sent what they had.
    [record] = CaptureStore(directory / "captures").read("0-0")
    spans = receiver.spans
    ours = [span for span in spans if "otel_gym.model_call.id" in plain(span.attributes)]
    assert [record["model_call_id"][:16]] == [span.span_id.hex() for span in ours]
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


def test_fastapis_own_spans_are_below_the_call_and_know_no_prefix(tmp_path: Path) -> None:
    framework, variables = FASTAPIS_OWN
    with http_receiver() as receiver:
        spans = spans_of_one_call(receiver, tmp_path, framework, variables)
    call, server, endpoint = named(spans, "chat m"), named(spans, ROUTE), named(spans, "fastapi.endpoint")
    assert (b"", [], Span.SPAN_KIND_SERVER) == (call.parent_span_id, list(call.links), call.kind)
    assert (call.trace_id, call.span_id) == (server.trace_id, server.parent_span_id)
    assert (call.trace_id, server.span_id) == (endpoint.trace_id, endpoint.parent_span_id)
    assert CHAT == plain(server.attributes)["url.path"]


def test_spans_of_the_sdk_that_asks_an_upstream_are_below_the_call_and_no_second_call(
    served: Served, tmp_path: Path
) -> None:
    """Instrumentations of FastAPI, OpenAI's SDK and httpx, and ourselves three times, among them in the code."""
    command = ["uvicorn", "tests.servers.forwarding:app", "--port", "{{port}}"]
    variables = {
        "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "",
        "UPSTREAM": f"http://127.0.0.1:{served.ports['h11-sdk']}/v1",
    }
    with http_receiver() as receiver:
        spans = spans_of_one_call(receiver, tmp_path, "", variables, command)
    call, sdk = named(spans, "chat m"), named(spans, "openai.chat")
    above = {span.span_id: span.parent_span_id for span in spans}
    assert {call.trace_id} == {span.trace_id for span in spans}
    assert named(spans, ROUTE).span_id == sdk.parent_span_id
    assert [sdk.span_id] == [above[span.span_id] for span in spans if span.name == "POST"]
    assert [call.span_id] == [span.span_id for span in spans if not span.parent_span_id]
    totals = aggregate_model_call_metrics(CaptureStore(tmp_path / "captures"), "0-0")
    assert (1, plain(call.attributes)["gen_ai.usage.input_tokens"]) == (totals["num_calls"], totals["tokens_in"])
