"""Behind the servers under test: model routes that answer as they are told; all else shows what the application saw."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any, Literal, cast

from starlette.responses import StreamingResponse

from otel_gym import CaptureMiddleware, current_rollout_id
from otel_gym.asgi import Receive, Scope, Send
from otel_gym.testing import answer, stream

Dialect = Literal["responses", "chat", "messages"]
PATHS: dict[str, Dialect] = {"/v1/responses": "responses", "/v1/chat/completions": "chat", "/v1/messages": "messages"}
PLAYS = ("plain", "pieces", "stream")
TEXTS = ("Hé", "llo ", "wörld")
SECONDS_BETWEEN_DELTAS = 0.01


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """`{"play": …}` in the request chooses the answer: `plain`, `pieces`, `stream`, `endless` or `lingering`."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    if scope["type"] == "websocket":
        await _echo(scope, receive, send)
    elif path in PATHS and scope["method"] == "POST":
        await _play(PATHS[path], scope, receive, send)
    elif path == "/v1/models/":
        host = next(value for name, value in scope["headers"] if name == b"host")
        location = b"http://" + host + scope.get("root_path", "").encode() + b"/v1/models"
        await _answer(send, 307, b"", [(b"location", location)])
    else:
        seen = {key: scope.get(key) for key in ("method", "path", "root_path")}
        seen |= {key: scope[key].decode("latin-1") for key in ("raw_path", "query_string")}
        await _answer(send, 200, json.dumps({**seen, "rollout": current_rollout_id()}).encode())


async def _play(dialect: Dialect, scope: Scope, receive: Receive, send: Send) -> None:
    body, more = b"", True
    if (b"x-no-body", b"1") not in scope["headers"]:
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
    play = json.loads(body)["play"]
    if play in ("plain", "pieces"):
        data = json.dumps(answer(dialect, "".join(TEXTS)), ensure_ascii=False).encode()
        if play == "plain":
            await _answer(send, 200, data)
        else:
            await _pieces(send, b"application/json", [data[:7], data[7:60], data[60:]])
    elif play == "stream":
        await _pieces(send, b"text/event-stream; charset=utf-8", stream(dialect, *TEXTS))
    elif play == "lingering":
        await send(_start(b"text/event-stream", []))
        for event in stream(dialect, *TEXTS):
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await asyncio.sleep(30)
    else:
        response = StreamingResponse(_endless(dialect), media_type="text/event-stream")
        await response(scope, receive, send)


async def _endless(dialect: Dialect) -> AsyncIterator[bytes]:
    events = stream(dialect, "on and ")
    for event in events[:2]:
        yield event
    delta = next(event for event in events if b"on and " in event)
    while True:
        yield delta
        await asyncio.sleep(SECONDS_BETWEEN_DELTAS)


def _start(media_type: bytes, more: list[tuple[bytes, bytes]], status: int = 200) -> dict[str, Any]:
    headers = [(b"content-type", media_type), (b"X-Pid", str(os.getpid()).encode()), (b"set-cookie", b"a=1"), *more]
    return {"type": "http.response.start", "status": status, "headers": [*headers, (b"set-cookie", b"b=2")]}


async def _answer(send: Send, status: int, data: bytes, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    length = (b"content-length", str(len(data)).encode())
    await send(_start(b"application/json", [*(headers or []), length], status))
    await send({"type": "http.response.body", "body": data})


async def _pieces(send: Send, media_type: bytes, pieces: list[bytes]) -> None:
    await send(_start(media_type, []))
    for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send(cast("dict[str, Any]", {"type": f"{kind}.complete"}))
        if kind == "lifespan.shutdown":
            return


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    """A websocket that says where it is, then says everything again."""
    while (message := await receive())["type"] != "websocket.disconnect":
        if message["type"] == "websocket.connect":
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.send", "text": scope["path"]})
        else:
            await send({"type": "websocket.send", "text": message["text"]})


captured = CaptureMiddleware(application)
"""For servers that are started by name: what they do is said by their environment."""
