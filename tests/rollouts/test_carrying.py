"""What goes over the wire, of both HTTP libraries: a transport below the client writes the requests down."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import otel_gym
from otel_gym import Settings
from otel_gym.rollouts import RolloutTransport, carry

SERVERS = {"policy": "http://policy:8000", "proxied": "http://proxy/models/p/v1"}
ON = Settings(observability_enabled=True, model_call_capture_dir=Path("/captures"), model_servers=SERVERS)
OFF = ON.model_copy(update={"observability_enabled": False})


@pytest.fixture(params=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(request.param)


class Wire:
    """Answers each request, and keeps it."""

    def __init__(self, library: Any) -> None:
        self.seen: list[Any] = []
        self.transport = library.MockTransport(self._answer)
        self._library = library

    def _answer(self, request: Any) -> Any:
        self.seen.append(request)
        if request.url.path.endswith("/moved"):
            return self._library.Response(307, headers={"location": "/v1/responses"})
        return self._library.Response(200, json={"path": request.url.raw_path.decode()})

    @property
    def urls(self) -> list[str]:
        return [str(request.url) for request in self.seen]


@pytest.fixture
def wire(library: Any) -> Wire:
    return Wire(library)


@pytest.fixture(params=["hook", "transport"])
def client(request: pytest.FixtureRequest, library: Any, wire: Wire) -> Iterator[Any]:
    if request.param == "hook":
        made = carry(library.Client(transport=wire.transport, follow_redirects=True), settings=ON)
    else:
        made = library.Client(transport=RolloutTransport(wire.transport, settings=ON), follow_redirects=True)
    with made:
        yield made


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("http://policy:8000/v1/responses", "http://policy:8000/ng-rollout/3-1/v1/responses"),
        (
            "http://policy:8000/v1/chat/completions?a=%2F&b",
            "http://policy:8000/ng-rollout/3-1/v1/chat/completions?a=%2F&b",
        ),
        ("http://proxy/models/p/v1/messages", "http://proxy/models/p/ng-rollout/3-1/v1/messages"),
        ("http://proxy/models/q/v1/messages", "http://proxy/models/q/v1/messages"),
        ("http://policy:8000/ng-rollout/9-9/v1/responses", "http://policy:8000/ng-rollout/9-9/v1/responses"),
        ("http://policy:8001/v1/responses", "http://policy:8001/v1/responses"),
        ("https://api.openai.com/v1/responses", "https://api.openai.com/v1/responses"),
    ],
)
def test_only_calls_to_a_known_server_get_the_prefix(client: Any, wire: Wire, url: str, sent: str) -> None:
    client.post(url, json={})
    with otel_gym.rollout("3-1"):
        client.post(url, json={})
    assert [url, sent] == wire.urls
    assert "traceparent" not in wire.seen[1].headers


def test_a_redirected_call_keeps_the_prefix(client: Any, wire: Wire) -> None:
    with otel_gym.rollout("3-1"):
        client.post("http://policy:8000/v1/moved", json={})
    base = "http://policy:8000/ng-rollout/3-1/v1"
    assert [f"{base}/moved", f"{base}/responses"] == wire.urls


def test_with_capture_off_nothing_is_changed(library: Any, wire: Wire) -> None:
    with carry(library.Client(transport=wire.transport), settings=OFF) as client, otel_gym.rollout("3-1"):
        client.get("http://policy:8000/v1/models")
    assert ["http://policy:8000/v1/models"] == wire.urls


def test_the_trace_goes_along_to_known_servers_only(client: Any, wire: Wire) -> None:
    tracer = TracerProvider().get_tracer("agent")
    with otel_gym.rollout("3-1"), tracer.start_as_current_span("task") as span:
        client.get("http://policy:8000/v1/models")
        client.get("http://elsewhere/v1/models")
        client.get("http://policy:8000/v1/models", headers={"traceparent": "theirs"})
    trace_id = trace.format_trace_id(span.get_span_context().trace_id)
    ours, elsewhere, theirs = (request.headers.get("traceparent") for request in wire.seen)
    assert (trace_id, None, "theirs") == (ours.split("-")[1], elsewhere, theirs)


@pytest.mark.parametrize("way", ["hook", "transport"])
async def test_one_async_client_serves_many_rollouts_at_once(library: Any, wire: Wire, way: str) -> None:
    if way == "hook":
        client = carry(library.AsyncClient(transport=wire.transport), settings=ON)
    else:
        client = library.AsyncClient(transport=RolloutTransport(wire.transport, settings=ON))

    async def one(number: int) -> list[str]:
        with otel_gym.rollout(f"{number}-0"):
            answers = [await client.post("http://policy:8000/v1/responses", json={}) for _ in range(3)]
        return [answer.json()["path"] for answer in answers]

    async with client:
        paths = await asyncio.gather(*map(one, range(40)))
    assert [[f"/ng-rollout/{number}-0/v1/responses"] * 3 for number in range(40)] == paths


def test_the_clients_own_hooks_stay(library: Any, wire: Wire) -> None:
    asked: list[str] = []
    client = library.Client(
        transport=wire.transport, event_hooks={"request": [lambda request: asked.append(request.url.path)]}
    )
    with carry(client, settings=ON), otel_gym.rollout("3-1"):
        client.get("http://policy:8000/v1/models")
    assert (["/v1/models"], 0) == (asked, len(client.event_hooks["response"]))


def test_what_is_no_client_is_refused() -> None:
    with pytest.raises(TypeError, match="takes an httpx client, not object"):
        carry(object(), settings=ON)
