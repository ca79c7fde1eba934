from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_gym import CaptureMiddleware, Settings
from otel_gym.websockets import asks_for_websocket

UPGRADE = [(b"connection", b"Upgrade"), (b"Upgrade", b"WebSocket")]
WAYS: dict[str, Any] = {"websocket.http.response": {}}


class Socket:
    """A websocket of an ASGI server: what it is told, and what the application behind it saw."""

    def __init__(self, path: str, **scope: Any) -> None:
        self.scope = {"type": "websocket", "path": path, "raw_path": path.encode(), "headers": [], **scope}
        self.told: list[Any] = []
        self.seen: list[Any] = []
        self._events = [{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}]

    async def through(self, directory: Path, **settings: Any) -> CaptureMiddleware:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            self.seen.append((scope["type"], scope["path"], scope.get("raw_path")))
            await receive()
            await send({"type": "websocket.accept"})

        settings = {"observability_enabled": True, "model_call_capture_dir": directory, **settings}
        middleware = CaptureMiddleware(app, Settings(**settings))
        await middleware(self.scope, self._receive, self._send)
        return middleware

    async def _receive(self) -> Any:
        return self._events.pop(0)

    async def _send(self, message: Any) -> None:
        self.told.append(message)


ACCEPTED = [{"type": "websocket.accept"}]
CALL = "/ng-rollout/0-0/v1/responses"


async def test_an_upgrade_of_a_model_route_is_answered_426(tmp_path: Path) -> None:
    socket = Socket(CALL, extensions=WAYS)
    middleware = await socket.through(tmp_path)
    start, body = socket.told
    assert ("websocket.http.response.start", 426) == (start["type"], start["status"])
    assert ("websocket.http.response.body", False) == (body["type"], body["more_body"])
    assert str(len(body["body"])).encode() == dict(start["headers"])[b"content-length"]
    assert ([], {"websocket_refused": 1}) == (socket.seen, dict(middleware.unattributed.counts))


@pytest.mark.parametrize("extensions", [None, {}, {"tls": {}}])
async def test_a_server_that_can_answer_no_upgrade_closes_it(tmp_path: Path, extensions: Any) -> None:
    socket = Socket(CALL, extensions=extensions)
    await socket.through(tmp_path)
    assert ([("websocket.close", 1008)], []) == ([(told["type"], told["code"]) for told in socket.told], socket.seen)


@pytest.mark.parametrize("kind", ["websocket", "http"])
async def test_an_upgrade_passes_without_its_prefix_where_settings_say_so(tmp_path: Path, kind: str) -> None:
    socket = Socket(CALL, type=kind, method="GET", headers=UPGRADE)
    middleware = await socket.through(tmp_path, websockets="pass")
    assert [(kind, "/v1/responses", b"/v1/responses")] == socket.seen
    assert (ACCEPTED, {"websocket": 1}) == (socket.told, dict(middleware.unattributed.counts))


async def test_a_get_that_asks_for_an_upgrade_is_answered_426_too(tmp_path: Path) -> None:
    socket = Socket(CALL, type="http", method="GET", headers=UPGRADE)
    await socket.through(tmp_path)
    assert ([("http.response.start", 426)], []) == ([(m["type"], m["status"]) for m in socket.told[:1]], socket.seen)


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("/ng-rollout/0-0/v1/realtime", "/v1/realtime"),
        ("/ng-rollout/../v1/realtime", "/v1/realtime"),
        ("/v1/responses", "/v1/responses"),
        ("/ng-rollout/0-0", "/ng-rollout/0-0"),
    ],
)
async def test_other_websockets_pass(tmp_path: Path, path: str, seen: str) -> None:
    socket = Socket(path, extensions=WAYS)
    middleware = await socket.through(tmp_path)
    assert ([("websocket", seen, seen.encode())], ACCEPTED) == (socket.seen, socket.told)
    assert {} == dict(middleware.unattributed.counts)


async def test_with_capture_off_every_upgrade_passes_without_its_prefix(tmp_path: Path) -> None:
    socket = Socket(CALL, extensions=WAYS)
    await socket.through(tmp_path, observability_enabled=False)
    assert ([("websocket", "/v1/responses", b"/v1/responses")], ACCEPTED) == (socket.seen, socket.told)


async def test_an_upgrade_with_an_id_that_names_no_file_is_refused_as_well(tmp_path: Path) -> None:
    socket = Socket("/ng-rollout/../v1/responses", extensions=WAYS)
    await socket.through(tmp_path)
    assert ([426], []) == ([told["status"] for told in socket.told[:1]], socket.seen)


@pytest.mark.parametrize(
    ("method", "headers", "asks"),
    [
        ("GET", UPGRADE, True),
        ("get", [(b"upgrade", b"foo, websocket")], True),
        ("POST", UPGRADE, False),
        ("GET", [(b"upgrade", b"h2c")], False),
        ("GET", [(b"x-upgrade", b"websocket")], False),
        ("GET", [], False),
    ],
)
def test_who_asks_for_a_websocket(method: str, headers: list[tuple[bytes, bytes]], asks: bool) -> None:
    assert asks == asks_for_websocket({"type": "http", "method": method, "headers": headers})
