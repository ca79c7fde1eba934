"""One captured HTTP exchange: what the server and the application say to each other passes through here.

Every message is forwarded the moment it comes, until the piece that ends the answer: that one waits until the record is
durable. Source: the capture contract, "Streams".
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from otel_gym.asgi import Message, Receive, Scope, Send
from otel_gym.calls import Call
from otel_gym.correlation import Route
from otel_gym.passing_stream import PassingStream
from otel_gym.provider import Durable, Pipeline
from otel_gym.redirects import redirected

EXECUTION_OUTCOME: Final = "nemo_gym_model_execution"
"""Key of the execution outcome that an application may leave in scope state."""

MODEL_CALL_ID: Final = "otel_gym.model_call_id"
"""Scope key: id of the record that a captured request becomes."""

LINGER_SECONDS: Final = 0.05
"""How long an application may go on after the terminal event before its client gets it all the same."""


class State(Enum):
    """Where an exchange stands."""

    OPEN = "messages are forwarded and kept"
    HOLDING = "the terminal event has passed: messages are held and kept until the call is cut"
    CUT = "the call is over: messages are held until the record is durable"
    FREE = "messages are forwarded and nothing else"


class Exchange:
    """The responder of one captured request: made inside the call, never shared.

    `receive` and `send` are for the application; `returned` or `raised` is called once, after it.

    Args:
        call: what the record will hold.
        pipeline: where the completed call goes.
        scope: as the application gets it.
        route: where the prefix of the path stood, None when the rollout was declared otherwise.
        receive, send: of the server.
    """

    def __init__(
        self, call: Call, pipeline: Pipeline, scope: Scope, route: Route | None, receive: Receive, send: Send
    ) -> None:
        self._call = call
        self._pipeline = pipeline
        self.scope = scope
        self._route = route
        self._receive = receive
        self._send = send
        self._state = State.OPEN
        self._held: deque[Message] = deque()
        self._stream: PassingStream | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._durable: Durable | None = None
        self._release_task: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ the application's side

    async def receive(self) -> Message:
        """The next message of the client; request bodies are kept for the record."""
        message = await self._receive()
        if message["type"] == "http.request" and self._durable is None:
            self._call.request.add(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        """A message of the application, on its way to the client."""
        stream = self._stream
        while stream is not None and stream.judging is not None:
            await asyncio.wait((stream.judging,))  # another task of the application is in its send: order is kept
        if self._state is State.OPEN:
            if message["type"] == "http.response.body":
                await self._send_body(stream, message)
            elif message["type"] == "http.response.start":
                await self._send(self._start(message))
            else:
                await self._send(message)
        elif self._state is State.FREE:
            await self._send(message)
        else:
            self._held.append(message)
            if self._state is State.HOLDING and message["type"] == "http.response.body":
                self._keep(message)
                if not message.get("more_body", False):
                    await self._end()

    def _start(self, message: Message) -> Message:
        call = self._call
        call.status = message["status"]
        headers = message.get("headers", ())
        if not isinstance(headers, (list, tuple)):  # any iterable will do, and some can be gone through only once
            headers = list(headers)
            message = {**message, "headers": headers}
        encoding = _first(headers, b"content-encoding").decode("latin-1")
        media_type = _first(headers, b"content-type").partition(b";")[0].strip().lower()
        call.is_stream = media_type == b"text/event-stream"
        call.response.encoding = encoding
        if call.is_stream:
            self._stream = PassingStream(call.dialect, encoding, call.first_token)
        return message if self._route is None else redirected(self.scope, self._route, message)

    async def _send_body(self, stream: PassingStream | None, message: Message) -> None:
        body = self._keep(message)
        if body:
            if stream is not None:
                verdict = stream.feed(body)
                if verdict is None:
                    verdict = await stream.judged()
                if verdict:
                    self._call.terminal = stream.terminal
                    self._state = State.HOLDING
            elif self._call.latency_ttft_ms is None:
                self._call.first_token()
        if not message.get("more_body", False):
            self._held.append(message)
            await self._end()
        elif self._state is State.OPEN:
            await self._send(message)
        else:
            self._held.append(message)
            self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._linger)

    def _keep(self, message: Message) -> bytes:
        body = message.get("body", b"")
        if type(body) is not bytes:  # frameworks hand on memoryviews too
            body = bytes(body)
        if body:
            self._call.response.add(body)
        return body

    # ------------------------------------------------------------------ the end

    async def _end(self) -> None:
        """The last body message has come and is held."""
        self._call.ended = True
        self._cut()
        await self._release()

    def _linger(self) -> None:
        """The application still runs after the terminal event: its client has waited long enough."""
        if self._state is State.HOLDING:
            self._cut()
            self._begin_release()

    def _begin_release(self) -> asyncio.Task[None]:
        """Release in a task of its own, which outlives whoever waits for it."""
        task = self._release_task = asyncio.get_running_loop().create_task(self._release())
        _unfinished.add(task)
        task.add_done_callback(_finished)
        return task

    def _cut(self, error: BaseException | None = None) -> None:
        """The call is over: what came until now is the record."""
        self._state = State.CUT
        if self._timer is not None:
            self._timer.cancel()
        state = self.scope.get("state")
        self._call.outcome = state.get(EXECUTION_OUTCOME) if isinstance(state, Mapping) else None
        self._call.complete(error)
        self._durable = self._pipeline.submit(self._call)

    async def _release(self) -> None:
        """Wait until the record is durable, then let go what is held, in order."""
        if self._durable is not None:
            await self._durable.wait()
        try:
            while self._held:
                await self._send(self._held.popleft())
        except Exception:  # the client is gone: so is what it would have got
            self._held.clear()
            raise
        finally:
            if not self._held:
                self._state = State.FREE

    async def returned(self) -> None:
        """The application returned."""
        if self._state in (State.OPEN, State.HOLDING):
            self._cut()
        await self._settled()

    async def raised(self, error: BaseException) -> None:
        """The application raised; the caller re-raises."""
        if self._state in (State.OPEN, State.HOLDING):
            self._cut(error)
        if isinstance(error, GeneratorExit):  # closed from outside: nothing may be awaited; the writer has the call
            return
        await self._settled()

    async def _settled(self) -> None:
        """Wait until all that is held has gone, whoever cancels meanwhile.

        The first cancellation is borne until the record is durable; at the second (anyio repeats it without a pause)
        the rest is left to the task that does it.
        """
        if self._state is State.FREE:
            return
        task = self._release_task or self._begin_release()
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as exc:
                if cancelled is not None or task.cancelled():
                    raise
                cancelled = exc
        if cancelled is not None:
            raise cancelled


def _first(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> bytes:
    """Value of the first header of this name (lower case), empty without one."""
    return next((bytes(value) for name, value in headers if name.lower() == wanted), b"")


_unfinished: set[asyncio.Task[None]] = set()


def _finished(task: asyncio.Task[None]) -> None:
    _unfinished.discard(task)
    if not task.cancelled():
        task.exception()  # a client that left while held messages went out; whoever waited was told
