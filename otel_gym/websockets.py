"""Websocket upgrades of model routes: refused, since a websocket would carry a whole rollout past the capture.

Source: the capture contract, "Which calls are captured". An agent that is answered 426 turns to HTTP at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_gym.asgi import Receive, Send

_BODY = (
    b'{"error":{"type":"upgrade_required","message":"Model calls of a rollout are captured over HTTP: '
    b'use HTTP for this route, without a websocket."}}'
)
_HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(_BODY)).encode("ascii")),
    (b"upgrade", b"HTTP/1.1"),
    (b"connection", b"Upgrade"),
]
_POLICY_VIOLATION = 1008


def asks_for_websocket(scope: Mapping[str, Any]) -> bool:
    """Whether this is a websocket, or the request for one as a server without websockets passes it on."""
    if scope["type"] == "websocket":
        return True
    return scope["method"].upper() == "GET" and any(
        name.lower() == b"upgrade" and b"websocket" in value.lower() for name, value in scope.get("headers", ())
    )


async def refuse_websocket(scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
    """Answer 426, by the means that the server has; without any for a websocket, close it."""
    if scope["type"] == "http":
        kind = "http.response"
    elif "websocket.http.response" in (scope.get("extensions") or {}):
        kind = "websocket.http.response"
    else:
        await receive()  # websocket.connect
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": "use HTTP"})
        return
    if scope["type"] == "websocket":
        await receive()
    await send({"type": f"{kind}.start", "status": 426, "headers": list(_HEADERS)})
    await send({"type": f"{kind}.body", "body": _BODY, "more_body": False})
