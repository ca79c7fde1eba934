"""The model server of the fault tests: an ASGI application whose answer follows from the request, byte by byte."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from otel_gym import CaptureMiddleware
from otel_gym.asgi import App, Receive, Scope, Send
from otel_gym.testing import EVENT_STREAM, JSON, answer, stream


def request(unique: str, *, filler: int = 0, streamed: bool = False, seconds: float = 0.0) -> bytes:
    """A chat request that asks for an answer of its own, after some time, and weighs what it should."""
    fields = {"model": "m", "unique": unique, "stream": streamed, "seconds": seconds, "filler": "x" * filler}
    return json.dumps(fields).encode()


def pieces(body: dict[str, Any]) -> list[bytes]:
    """What the model answers to a request."""
    if body["stream"]:
        return stream("chat", "Hello ", body["unique"])
    return [json.dumps(answer("chat", body["unique"])).encode()]


async def model(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers chat requests, and lifespans as a framework does."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    asked = json.loads(body)
    headers = EVENT_STREAM if asked["stream"] else JSON
    await send({"type": "http.response.start", "status": 200, "headers": list(headers)})
    for piece in pieces(asked):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        await asyncio.sleep(asked["seconds"])
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def captured() -> App:
    """The application of a server that is set by its environment."""
    return CaptureMiddleware(model)


async def http_only(scope: Scope, receive: Receive, send: Send) -> None:
    """The same, of one who has never heard of lifespans."""
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    await model(scope, receive, send)


def captured_http_only() -> App:
    """Likewise."""
    return CaptureMiddleware(http_only)
