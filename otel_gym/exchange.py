"""One captured HTTP exchange: what the server and the application say to each other passes through here.

Every message is forwarded the moment it comes, until the piece that ends the answer: that one waits until the record is
durable. Source: the capture contract, "Streams".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from enum import Enum
from typing import Any, Final

from otel_gym.asgi import Message, Receive, Scope, Send, some_headers
from otel_gym.calls import Call
from otel_gym.content_encoding import encoding_said
from otel_gym.correlation import Route
from otel_gym.passing_stream import PassingStream
from otel_gym.provider import Durable, Pipeline
from otel_gym.redirects import redirected

logger = logging.getLogger(__name__)

EXECUTION_OUTCOME: Final = "nemo_gym_model_execution"
"""Key of the execution outcome that an application may leave in scope state."""

MODEL_CALL_ID: Final = "otel_gym.model_call_id"
"""Scope key: id of the record that a captured request becomes."""

LINGER_SECONDS: Final = 0.05
"""How long an application may go on after the terminal event before its client gets it all the same."""

_TELLING: Final = frozenset({b"content-encoding", b"content-type", b"content-length"})

MOST_HELD_BYTES: Final = 1 << 20
"""What an application may send behind the terminal event before it has to wait again."""


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
        self._held_bytes = 0
        self._to_come: int | None = None  # bytes of a body whose length was announced
        self._stream: PassingStream | None = None
        self._passes: Callable[[bytes], bool] | None = None  # set while pieces of a stream may take the short way
        self._turn: asyncio.Task[None] | None = None  # hands a piece on that is being judged, or one behind it
        self._timer: asyncio.TimerHandle | None = None
        self._durable: Durable | None = None
        self._held_since: float | None = None
        self._release_task: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ the application's side

    async def receive(self) -> Message:
        """The next message of the client; request bodies are kept for the record."""
        message = await self._receive()
        if message["type"] == "http.request" and self._durable is None:
            self._call.request.add(message.get("body", b""))
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """A message of the application, on its way to the client.

        Nearly every piece of nearly every stream takes the short way here: kept, and handed on as it is.
        """
        passes = self._passes
        if passes is not None and message.get("more_body") and message["type"] == "http.response.body":
            body = message.get("body")
            if body.__class__ is bytes and passes(body):
                self._call.response.add(body)
                return self._send(message)
        return self._send_watched(message)

    async def _send_watched(self, message: Message) -> None:
        turn = self._turn
        if turn is None or turn.done():
            await self._take(message)
        else:  # another task of the application is in its send, or has left it: order is kept
            await self._whatever_happens(self._take_after(turn, _as_now(message)))

    async def _whatever_happens(self, sending: Coroutine[Any, Any, None]) -> None:
        """Hand a message on in a task of its own: it reaches the client though the application is cancelled meanwhile.

        Without capture the server would have had it by then. The application's cancellation goes on at once.
        """
        turn = self._turn = _task(sending)
        await asyncio.wait((turn,))
        turn.result()

    async def _take_after(self, turn: asyncio.Task[None], message: Message) -> None:
        await asyncio.wait((turn,))
        if self._state is State.CUT:  # `_release` waits for this
            self._held.append(message)
        else:
            await self._take(message, has_turn=True)

    async def _take(self, message: Message, has_turn: bool = False) -> None:
        """A message whose turn it is; with `has_turn` in a task of its own."""
        if self._state is State.OPEN:
            if message["type"] == "http.response.body":
                await self._send_body(message, has_turn)
            elif message["type"] == "http.response.start":
                message = self._start(message)
                if self._to_come == 0:  # the client sees the end of the answer with its head
                    self._hold_the_end(dict(message))
                else:
                    await self._send(message)
            else:
                await self._send(message)
        elif self._state is State.FREE:
            await self._send(message)
        else:
            await self._hold(message)

    async def _hold(self, message: Message) -> None:
        """Keep a message back, as it is now: applications use their messages, and the buffers in them, again."""
        held = _as_now(message)
        self._held.append(held)
        if message["type"] == "http.response.body":
            if self._state is State.HOLDING:
                self._keep(held)
                if not message.get("more_body", False):
                    await self._end()
                    return
            self._held_bytes += len(held["body"])
        if self._held_bytes <= MOST_HELD_BYTES:
            await asyncio.sleep(0)  # an application that never waits would keep the loop from cutting the call
        elif self._release_task is None:
            await asyncio.sleep(LINGER_SECONDS)
        else:
            await asyncio.wait((self._release_task,))

    def _start(self, message: Message) -> Message:
        call = self._call
        call.status = message["status"]
        headers = message.get("headers", ())
        if not isinstance(headers, (list, tuple)):  # any iterable will do, and some can be gone through only once
            headers = list(headers)
            message = {**message, "headers": headers}
        said = some_headers(headers, _TELLING)
        encoding = encoding_said(said.get(b"content-encoding", ()))
        media_type = _first(said, b"content-type").partition(b";")[0].strip().lower()
        call.is_stream = media_type == b"text/event-stream"
        call.response.encoding = encoding
        if call.is_stream:
            self._stream = PassingStream(call.dialect, encoding, call.first_token, call.response.limit)
        length = _first(said, b"content-length").strip()
        self._to_come = int(length) if length.isdigit() and len(length) < 19 else None
        return message if self._route is None else redirected(self.scope, self._route, message)

    async def _send_body(self, message: Message, has_turn: bool) -> None:
        body = self._keep(message)
        if body:
            if (stream := self._stream) is not None:
                self._passes = None
                verdict = stream.feed(body)
                if verdict is None:
                    judged = self._send_judged(stream, {**message, "body": body})
                    await (judged if has_turn else self._whatever_happens(judged))
                    return
                self._learn(stream, verdict)
            elif self._call.latency_ttft_ms is None:
                self._call.first_token()
            if self._to_come is not None:
                self._to_come -= len(body)
        await self._go_on(message, body)

    async def _send_judged(self, stream: PassingStream, message: Message) -> None:
        """A piece with an event that is too long to be judged on the loop."""
        verdict = await stream.judged()
        if self._state is not State.OPEN:  # the call was cut meanwhile; `_release` waits for this
            self._held.append(message)
            return
        self._learn(stream, verdict)
        if self._to_come is not None:
            self._to_come -= len(message["body"])
        await self._go_on(message, message["body"])

    def _learn(self, stream: PassingStream, ends: bool) -> None:
        """Whether the last piece ends the stream."""
        if ends:
            self._call.terminal = stream.terminal
            self._state = State.HOLDING
        elif self._to_come is None:  # where bytes are counted, no piece takes the short way
            self._passes = stream.passes

    async def _go_on(self, message: Message, body: bytes) -> None:
        """A piece that has been looked at: to the client, unless the client takes it for the end."""
        if not message.get("more_body", False):
            self._held.append(message)
            await self._end()
        elif self._state is State.HOLDING or (self._to_come is not None and self._to_come <= 0):
            self._hold_the_end({**message, "body": body})
        else:
            await self._send(message)

    def _hold_the_end(self, message: Message) -> None:
        """What the client takes for the end: a terminal event, or the last byte of the length that was announced."""
        self._held.append(message)
        self._held_since = time.perf_counter()
        self._state = State.HOLDING
        if self._stream is None:
            self._call.ended = True
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
        """Release in a task of its own."""
        self._release_task = _task(self._release(self._turn))
        return self._release_task

    def _cut(self, error: BaseException | None = None) -> None:
        """The call is over: what came until now is the record."""
        self._state = State.CUT
        self._passes = None
        if self._held_since is None:
            self._held_since = time.perf_counter()
        if self._timer is not None:
            self._timer.cancel()
        self._call.outcome = _outcome(self.scope)
        self._call.complete(error)
        self._durable = self._pipeline.submit(self._call)

    async def _release(self, turn: asyncio.Task[None] | None = None) -> None:
        """Wait until the record is durable, and for what is still to be held, then let go what is held, in order."""
        if self._durable is not None:
            await self._durable.wait()
        if turn is not None:
            await asyncio.wait((turn,))
        held_since, self._held_since = self._held_since, None
        if held_since is not None and (measured := self._pipeline.measured) is not None:
            measured.added(time.perf_counter() - held_since)
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
        with contextlib.suppress(Exception):  # the client has gone, too: what goes on is the application's own error
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


def _as_now(message: Message) -> Message:
    """A copy that stays as it is."""
    if message["type"] != "http.response.body":
        return dict(message)
    return {**message, "body": bytes(message.get("body", b""))}


def _outcome(scope: Scope) -> Any:
    """The execution outcome as it is now, whatever becomes of it later; None where there is none, or none to be had."""
    try:
        state = scope.get("state")
        outcome = state.get(EXECUTION_OUTCOME) if type(state) is dict or isinstance(state, Mapping) else None
        return None if outcome is None else dict(outcome) if isinstance(outcome, Mapping) else outcome
    except Exception:
        logger.exception("otel-gym: the execution outcome in scope state cannot be read: left out")
        return None


def _first(said: Mapping[bytes, list[bytes]], name: bytes) -> bytes:
    """The first value of a header, empty without one."""
    values = said.get(name)
    return values[0] if values else b""


_unfinished: set[asyncio.Task[None]] = set()


def _task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task that outlives whoever waits for it."""
    task = asyncio.get_running_loop().create_task(work)
    _unfinished.add(task)
    task.add_done_callback(_finished)
    return task


def _finished(task: asyncio.Task[None]) -> None:
    _unfinished.discard(task)
    if not task.cancelled():
        task.exception()  # a client that left while held messages went out; whoever waited was told
