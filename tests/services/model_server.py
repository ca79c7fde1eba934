"""A model server for `uvicorn tests.services.model_server:app`, captured as its environment says.

The query of a request says how it plays:

    POST /ng-rollout/0-0/v1/chat/completions?play=refuse&pause=0.2

`play`: `answer` (the default; a stream when the request asks for one), `refuse` (status 429), `raise`, `cut` (a stream
that ends early), `garble` (no JSON object). `pause`: seconds before the answer.

The body of a request says what is answered: `say` is the text; `answered` are fields that the answer has beside or
instead of its own; `events` are the payloads of a stream, in the place of the usual ones; `answered_headers` go with
any answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from typing import Any, Literal
from urllib.parse import parse_qsl

from otel_gym import CaptureMiddleware
from otel_gym.asgi import Receive, Scope, Send
from otel_gym.testing import answer, sse, stream

Dialect = Literal["responses", "chat", "messages"]
PATHS: dict[str, Dialect] = {"/v1/responses": "responses", "/v1/chat/completions": "chat", "/v1/messages": "messages"}
MODEL = "m"
TOKENS_IN, TOKENS_OUT = 7, 5  # of every answer


class PlayedError(Exception):
    """What `play=raise` raises."""


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """The server without capture."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    dialect = PATHS.get(scope["path"].removeprefix(scope.get("root_path", "")))
    if dialect is None:
        await _answer(send, 200, {"pid": os.getpid(), "rss_kb": _resident_kb()}, [])
        return
    asked = json.loads(body)
    said = str(asked.get("say", "hello"))
    orders = dict(parse_qsl(scope["query_string"].decode()))
    await asyncio.sleep(float(orders.get("pause", 0)))
    play = orders.get("play", "answer")
    headers = [(name.encode(), value.encode()) for name, value in asked.get("answered_headers", {}).items()]
    if play == "refuse":
        await _answer(send, 429, {"error": {"type": "rate_limit", "message": said}}, headers)
    elif play == "raise":
        raise PlayedError(said)
    elif play == "garble":
        await _answer(send, 200, said, headers)
    elif asked.get("stream") or play == "cut":
        events = _events(dialect, said, asked.get("events"))
        await _stream(send, events[:3] if play == "cut" else events, headers)
    else:
        await _answer(send, 200, {**answer(dialect, said, MODEL), **asked.get("answered", {})}, headers)


def _events(dialect: Dialect, said: str, told: list[dict[str, Any]] | None) -> list[bytes]:
    if told is None:
        return stream(dialect, said[: len(said) // 2], said[len(said) // 2 :], model=MODEL)
    return [sse(payload, payload.get("type")) for payload in told] + [sse("[DONE]")] * (dialect == "chat")


async def _stream(send: Send, events: list[bytes], more_headers: list[tuple[bytes, bytes]]) -> None:
    headers = [(b"content-type", b"text/event-stream"), *more_headers]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for event in events:
        await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _answer(send: Send, status: int, value: Any, more_headers: list[tuple[bytes, bytes]]) -> None:
    data = json.dumps(value).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode()), *more_headers]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


def _resident_kb() -> int:
    with open(f"/proc/{os.getpid()}/status", encoding="ascii") as status:  # noqa: PTH123  (no file, and short)
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


# Whatever we would ever log is in the server's log.
for _name in ("otel_gym", "otel_gym_jsonl", "otel_gym_otlp"):
    logging.getLogger(_name).setLevel(logging.DEBUG)
    logging.getLogger(_name).addHandler(logging.StreamHandler(sys.stderr))

app = CaptureMiddleware(application)
