"""Websocket upgrades as real servers pass them on and real clients send them."""

from __future__ import annotations

import json

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.servers.processes import Served

pytestmark = pytest.mark.servers

SERVERS = ("h11", "httptools", "hypercorn")


def address(served: Served, server: str, rollout_id: str, path: str) -> str:
    return served.url(server, rollout_id).replace("http:", "ws:") + path


@pytest.mark.parametrize("server", [*SERVERS, "no-websockets"])
@pytest.mark.parametrize("path", ["/v1/responses", "/training-token-capture/v1/responses?x=1", "/v1/messages"])
def test_a_client_is_told_to_use_http(served: Served, rollout_id: str, server: str, path: str) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(address(served, server, rollout_id, path), proxy=None):
        pass
    response = refused.value.response
    assert (426, "upgrade_required") == (response.status_code, json.loads(response.body or b"")["error"]["type"])
    assert [] == served.records(rollout_id)


@pytest.mark.parametrize(
    ("server", "path", "seen"),
    [
        *((server, "/v1/realtime?x=1", "/v1/realtime") for server in SERVERS),
        ("pass", "/v1/responses", "/v1/responses"),
        ("rooted", "/v1/realtime", "/proxy/v1/realtime"),
    ],
)
def test_other_websockets_work(served: Served, rollout_id: str, server: str, path: str, seen: str) -> None:
    with connect(address(served, server, rollout_id, path), proxy=None) as socket:
        assert seen == socket.recv(timeout=20)
        for text in ("one", "zwei é"):
            socket.send(text)
            assert text == socket.recv(timeout=20)
    assert [] == served.records(rollout_id)


def test_websockets_without_a_prefix_are_none_of_ours(served: Served) -> None:
    with connect(f"ws://127.0.0.1:{served.ports['h11']}/v1/responses", proxy=None) as socket:
        assert "/v1/responses" == socket.recv(timeout=20)
