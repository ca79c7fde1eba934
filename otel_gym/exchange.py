"""One captured HTTP exchange: what the server and the application say to each other passes through here.

Every message is forwarded the moment it comes, until the piece that ends the answer: that one waits until the record is
durable. Source: the capture contract, "Streams".
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from otel_gym.asgi import Message, Receive, Scope, Send
from otel_gym.calls import Call
from otel_gym.content_encoding import Decoder
from otel_gym.correlation import Route
from otel_gym.provider import Durable, Pipeline
from otel_gym.redirects import redirected
from otel_gym.sse import FirstToken, TerminalWatch

logger = logging.getLogger(__name__)

EXECUTION_OUTCOME: Final = "nemo_gym_model_execution"
"""Key of the execution outcome that an application may leave in scope state."""

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
        self._first_token: FirstToken | None = None
        self._watch: TerminalWatch | None = None
        self._decoder: Decoder | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._durable: Durable | None = None
        self._release_task: asyncio.Task[None] | None = None
        self._judging: asyncio.Future[bool] | None = None

    # ------------------------------------------------------------------ the application's side

    async def receive(self) -> Message:
        """The next message of the client; request bodies are kept for the record."""
        message = await self._receive()
        if message["type"] == "http.request" and self._durable is None:
            self._call.request.add(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        """A message of the application, on its way to the client."""
        while self._judging is not None:  # another task of the application is in its send: messages keep their order
            await asyncio.wait((self._judging,))
        if self._state is State.FREE:
            await self._send(message)
        elif self._state is State.CUT:
            self._held.append(message)
        elif message["type"] == "http.response.body":
            await self._send_body(message)
        elif self._state is State.HOLDING:
            self._held.append(message)
        else:
            if message["type"] == "http.response.start":
                message = self._start(message)
            await self._send(message)

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
            self._first_token = FirstToken()
            self._watch = TerminalWatch(call.dialect)
            if encoding:
                self._decoder = Decoder(encoding)
        return message if self._route is None else redirected(self.scope, self._route, message)

    async def _send_body(self, message: Message) -> None:
        body = message.get("body", b"")
        last = not message.get("more_body", False)
        if body:
            self._call.response.add(body)
        if self._state is State.OPEN and body:
            if self._watch is None:
                if self._call.latency_ttft_ms is None:
                    self._call.first_token()
            elif await self._completes_terminal(self._watch, body):
                self._state = State.HOLDING
        if last:
            self._call.ended = True
        elif self._state is State.OPEN:
            await self._send(message)
            return
        self._held.append(message)
        if last:
            self._cut()
            await self._release()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._linger)

    async def _completes_terminal(self, watch: TerminalWatch, body: bytes) -> bool:
        """Whether this piece completes the stream's terminal event; takes the time to the first token on the way."""
        if type(body) is not bytes:  # frameworks hand on memoryviews too
            body = bytes(body)
        pieces = [body] if self._decoder is None else self._decoder.feed(body)
        try:
            for piece in pieces:
                if self._first_token is not None and self._first_token.feed(piece):
                    self._first_token = None
                    self._call.first_token()
                verdict = watch.feed(piece)
                if verdict is None:  # a long event is judged off the loop; the application waits in its send meanwhile
                    verdict = await self._judged(watch)
                if verdict:
                    return True
        except Exception:  # a fault of ours costs the stream its early end, never the client its answer
            logger.exception("otel-gym: a stream cannot be watched for its end; it is recorded when its body ends")
            self._watch = None
        return False

    async def _judged(self, watch: TerminalWatch) -> bool:
        self._judging = asyncio.get_running_loop().run_in_executor(None, watch.judge)
        try:
            return await self._judging
        finally:
            self._judging = None

    # ------------------------------------------------------------------ the end

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
