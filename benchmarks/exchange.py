"""One HTTP exchange, the application that answers it, and a client that drives both by hand."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from otel_gym.asgi import App, Message, Receive, Scope, Send

READ_SIZE = 65_536  # what uvicorn hands to an application at once


class WrongBytesError(AssertionError):
    """A client did not get what the application sent: no figure of such a run means anything."""


@dataclass(frozen=True)
class Exchange:
    """A request and the answer to it.

    Attributes:
        path: route of the API, without prefix.
        request: JSON body.
        pieces: the answer's body, one element an ASGI message.
        stream: whether the answer is a stream of server-sent events.
    """

    path: str
    request: bytes
    pieces: tuple[bytes, ...]
    stream: bool = False

    @property
    def response_size(self) -> int:
        """Bytes of the answer's body."""
        return sum(map(len, self.pieces))

    @property
    def largest_body_mb(self) -> float:
        """Size of the larger body, MiB."""
        return max(len(self.request), self.response_size) / 2**20


class ToyModel:
    """The bare application: reads the request as Starlette does, answers, gives way to others before each piece."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        media_type = b"text/event-stream" if exchange.stream else b"application/json"
        self.headers = [(b"content-type", media_type)]
        if not exchange.stream:
            self.headers.append((b"content-length", str(exchange.response_size).encode()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call, whatever it asks."""
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        body = await read_body(receive)
        await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 200, "headers": list(self.headers)})
        for piece in self.exchange.pieces:
            if self.exchange.stream:
                await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": piece, "more_body": self.exchange.stream})
        if self.exchange.stream:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        del body  # held to the end, as a route handler holds its request


async def read_body(receive: Receive) -> bytes:
    """The whole request body."""
    pieces = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


class Client:
    """One call of an application, without a server between."""

    def __init__(self, exchange: Exchange, rollout_id: str) -> None:
        self.exchange = exchange
        self.path = f"/ng-rollout/{rollout_id}{exchange.path}"
        self.sent = 0
        self.received = 0
        self.last_piece_at = 0.0
        self.done = asyncio.Event()

    async def receive(self) -> Message:
        """The next piece of the request; after the last, nothing until the answer is there."""
        body = self.exchange.request
        if self.sent < len(body):
            piece = body[self.sent : self.sent + READ_SIZE]
            self.sent += len(piece)
            return {"type": "http.request", "body": piece, "more_body": self.sent < len(body)}
        await self.done.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Take a piece of the answer."""
        if message["type"] == "http.response.body":
            self.received += len(message.get("body", b""))
            self.last_piece_at = time.perf_counter()
            if not message.get("more_body", False):
                self.done.set()

    async def call(self, app: App) -> float:
        """Make the call; seconds until the last piece of the answer was there."""
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [
                (b"host", b"127.0.0.1:8000"),
                (b"content-type", b"application/json"),
                (b"content-length", str(len(self.exchange.request)).encode()),
            ],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8000),
            "state": {},
        }
        began = time.perf_counter()
        await app(scope, self.receive, self.send)
        if self.received != self.exchange.response_size or not self.done.is_set():
            raise WrongBytesError(f"{self.received} bytes came of {self.exchange.response_size}")
        return self.last_piece_at - began


@contextlib.asynccontextmanager
async def lifespan(app: App) -> AsyncIterator[None]:
    """Start an application up and shut it down, as a server does."""
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    outbox: asyncio.Queue[Message] = asyncio.Queue()
    running = asyncio.ensure_future(app({"type": "lifespan", "asgi": {"version": "3.0"}}, inbox.get, outbox.put))
    await inbox.put({"type": "lifespan.startup"})
    await outbox.get()
    yield
    await inbox.put({"type": "lifespan.shutdown"})
    await outbox.get()
    await running
