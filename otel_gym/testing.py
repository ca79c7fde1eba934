"""Fakes for tests of anything that stands on otel-gym: a scripted model, a client that sees each message, an exporter.

    model = ScriptedModel(stream("chat", "Hel", "lo"))
    async with Exchange(CaptureMiddleware(model, settings=settings), "/ng-rollout/0-0/v1/chat/completions") as call:
        start = await call.message()
        first = await call.message()      # at once, the model has not ended yet
        rest = await call.rest()

No sockets and no server: everything runs in the test's own event loop, so that a message is seen the moment it is sent.
"""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from types import TracebackType
from typing import Any, Literal

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

__all__ = ["CapturingExporter", "Exchange", "ScriptedModel", "answer", "sse", "stream"]

Message = MutableMapping[str, Any]
Application = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
Headers = Sequence[tuple[bytes, bytes]]
DialectName = Literal["responses", "chat", "messages"]

EVENT_STREAM = ((b"content-type", b"text/event-stream"),)
JSON = ((b"content-type", b"application/json"),)
_PATIENCE_S = 30.0


def sse(data: object, event: str | None = None) -> bytes:
    """One server-sent event; `data` is JSON unless it is text already."""
    text = data if isinstance(data, str) else json.dumps(data)
    return f"event: {event}\ndata: {text}\n\n".encode() if event else f"data: {text}\n\n".encode()


def answer(dialect: DialectName, text: str, model: str = "m") -> dict[str, Any]:
    """A model's whole answer, with 7 tokens in and 5 out."""
    if dialect == "chat":
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
        return {"id": "c1", "object": "chat.completion", "model": model, "choices": [choice], "usage": usage}
    if dialect == "messages":
        content = [{"type": "text", "text": text}]
        usage = {"input_tokens": 7, "output_tokens": 5}
        fields = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": content}
        return {**fields, "stop_reason": "end_turn", "usage": usage}
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [part]}
    usage = {"input_tokens": 7, "output_tokens": 5, "total_tokens": 12}
    fields = {"id": "r1", "object": "response", "status": "completed", "model": model}
    return {**fields, "output": [item], "usage": usage}


def stream(dialect: DialectName, *texts: str, model: str = "m") -> list[bytes]:
    """The same answer as events, one a piece: its beginning, one delta for each text, its end."""
    whole = answer(dialect, "".join(texts), model)
    events: list[tuple[str, dict[str, Any]]]
    if dialect == "chat":
        chunk = {"id": "c1", "object": "chat.completion.chunk", "model": model}
        deltas = [{"index": 0, "delta": {"content": text}, "finish_reason": None} for text in texts]
        first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        last = {"index": 0, "delta": {}, "finish_reason": "stop"}
        chunks = [sse({**chunk, "choices": [choice]}) for choice in (first, *deltas, last)]
        return [*chunks, sse({**chunk, "choices": [], "usage": whole["usage"]}), sse("[DONE]")]
    if dialect == "messages":
        start = {**whole, "content": [], "stop_reason": None, "usage": {"input_tokens": 7, "output_tokens": 1}}
        block = {"index": 0, "content_block": {"type": "text", "text": ""}}
        deltas = [{"index": 0, "delta": {"type": "text_delta", "text": text}} for text in texts]
        events = [("message_start", {"message": start}), ("content_block_start", block)]
        events += [("content_block_delta", delta) for delta in deltas]
        end = {"delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 5}}
        events += [("content_block_stop", {"index": 0}), ("message_delta", end), ("message_stop", {})]
    else:
        created = {"id": "r1", "object": "response", "status": "in_progress", "model": model, "output": []}
        item = {"type": "message", "id": "m1", "role": "assistant", "status": "in_progress", "content": []}
        place = {"item_id": "m1", "output_index": 0, "content_index": 0}
        events = [("response.created", {"response": created})]
        events += [("response.output_item.added", {"output_index": 0, "item": item})]
        events += [("response.output_text.delta", {**place, "delta": text}) for text in texts]
        events += [("response.completed", {"response": whole})]
    return [sse({"type": name, **fields}, name) for name, fields in events]


class ScriptedModel:
    """An ASGI application that reads each request whole and then plays the same script.

    Args:
        script: what happens in order. `bytes` is a body message, a mapping is sent as the message that it is; a number
            of seconds is slept, an event is waited for; an exception is raised.
        status: of the answer.
        headers: of the answer; those of an event stream by default.
        end: whether an empty last message ends the body.

    Attributes:
        scopes: of each call, as the model saw it.
        bodies: of each request.
    """

    def __init__(
        self,
        script: Iterable[bytes | Message | float | asyncio.Event | BaseException] = (),
        *,
        status: int = 200,
        headers: Headers = EVENT_STREAM,
        end: bool = True,
    ) -> None:
        self.script = list(script)
        self.status = status
        self.headers = headers
        self.end = end
        self.scopes: list[MutableMapping[str, Any]] = []
        self.bodies: list[bytes] = []

    @classmethod
    def of(cls, body: object, *, status: int = 200, headers: Headers = JSON) -> ScriptedModel:
        """A model whose answer is one JSON value in one last message."""
        data = json.dumps(body).encode()
        last = {"type": "http.response.body", "body": data, "more_body": False}
        return cls([last], status=status, headers=headers, end=False)

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        self.scopes.append(scope)
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": self.status, "headers": list(self.headers)})
        for step in self.script:
            if isinstance(step, bytes):
                await send({"type": "http.response.body", "body": step, "more_body": True})
            elif isinstance(step, BaseException):
                raise step
            elif isinstance(step, (int, float)):
                await asyncio.sleep(step)
            elif isinstance(step, asyncio.Event):
                await step.wait()
            else:
                await send(step)
        if self.end:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class Exchange:
    """One HTTP call of an ASGI application, whose client takes the messages one by one.

    An async context manager: entering starts the call, leaving cancels it if it still runs. As under a real server,
    `receive` gives the body, then waits until the client leaves (`disconnect`) or the answer has ended.

    Args:
        app: the application.
        path: as on the wire: percent-encoded, with its query.
        body: of the request; a sequence of pieces arrives as so many messages.
        method: of the request.
        headers: of the request.
        scope: keys that the scope has besides, or instead.

    Attributes:
        received: every message that `message` and `rest` have given.
        task: the application's run; its result or exception is the call's.
    """

    def __init__(
        self,
        app: Application,
        path: str,
        body: bytes | Sequence[bytes] = b"{}",
        *,
        method: str = "POST",
        headers: Headers = ((b"host", b"model.test"), *JSON),
        scope: MutableMapping[str, Any] | None = None,
    ) -> None:
        target, _, query = path.partition("?")
        self.scope: MutableMapping[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "scheme": "http",
            "method": method,
            "path": urllib.parse.unquote(target),
            "raw_path": target.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": list(headers),
            "client": ("127.0.0.1", 40000),
            "server": ("127.0.0.1", 8000),
            **(scope or {}),
        }
        self.received: list[Message] = []
        self._app = app
        self._pieces = [body] if isinstance(body, bytes) else list(body)
        self._sent: asyncio.Queue[Message | None] = asyncio.Queue()
        self._gone = asyncio.Event()

    async def __aenter__(self) -> Exchange:
        self.task = asyncio.ensure_future(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})

    async def message(self) -> Message | None:
        """The next message, None when the application has ended without another.

        Raises:
            TimeoutError: none came within 30 s.
        """
        try:
            message = await asyncio.wait_for(self._sent.get(), _PATIENCE_S)
        except asyncio.TimeoutError:
            raise TimeoutError(f"no message within {_PATIENCE_S:g} s") from None
        if message is None:
            self._sent.put_nowait(None)  # for whoever asks again
        else:
            self.received.append(message)
        return message

    async def rest(self) -> list[Message]:
        """All messages that are still to come; then the application's exception, if it raised one."""
        messages = []
        while (message := await self.message()) is not None:
            messages.append(message)
        await self.task
        return messages

    def disconnect(self) -> None:
        """The client leaves: `receive` gives `http.disconnect` from now on."""
        self._gone.set()

    @property
    def body(self) -> bytes:
        """The bytes of the answer so far."""
        return b"".join(message.get("body", b"") for message in self.received)

    async def _run(self) -> None:
        try:
            await self._app(self.scope, self._receive, self._send)
        finally:
            self._sent.put_nowait(None)

    async def _receive(self) -> Message:
        if self._pieces and not self._gone.is_set():
            piece = self._pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self._sent.put_nowait(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._gone.set()


class CapturingExporter(SpanExporter):
    """A span exporter that keeps what it is given.

    Attributes:
        spans: all spans, in the order of their export.
    """

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []
        self._arrived = threading.Condition()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._arrived:
            self.spans.extend(spans)
            self._arrived.notify_all()
        return SpanExportResult.SUCCESS

    def wait_for(self, count: int, timeout_s: float = _PATIENCE_S) -> list[ReadableSpan]:
        """The spans, as soon as there are so many of them.

        Raises:
            TimeoutError: there were fewer after that time.
        """
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self.spans) >= count, timeout_s):
                raise TimeoutError(f"{len(self.spans)} spans, not {count}, within {timeout_s:g} s")
            return list(self.spans)
