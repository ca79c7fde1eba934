"""The body of a request, on its way from the client to the upstream; and how one learns that the client has left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from otel_gym.asgi import Receive
from otel_gym.gateway.failures import ClientLeft


class RequestBody:
    """Reads the client's side of one request.

    Args:
        receive: of the server.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._first = b""
        self._more = True
        self._watch: asyncio.Task[None] | None = None
        self._caller: asyncio.Task[object] | None = None
        self._left = False

    async def begin(self) -> None:
        """Read the first piece; most bodies have no other."""
        self._first = await self._piece()

    async def whole(self) -> bytes:
        """Read all of it. Afterwards `content` is the whole."""
        pieces = [self._first]
        while self._more:
            pieces.append(await self._piece())
        self._first = b"".join(pieces)
        return self._first

    @property
    def content(self) -> bytes | AsyncIterator[bytes]:
        """For the upstream: the whole where it is there, else its pieces as they come."""
        return self._pieces() if self._more else self._first

    async def _pieces(self) -> AsyncIterator[bytes]:
        if self._first:
            yield self._first
        while self._more:
            if piece := await self._piece():
                yield piece
        self._begin_watch()

    async def _piece(self) -> bytes:
        message = await self._receive()
        if message["type"] != "http.request":
            self._more = False
            raise ClientLeft
        self._more = message.get("more_body", False)
        body = message.get("body", b"")
        return body if type(body) is bytes else bytes(body)

    # ------------------------------------------------------------------ behind the body

    def watch(self) -> None:
        """From now on, cancel this task when the client leaves; a body that is still coming says so by itself."""
        self._caller = asyncio.current_task()
        if not self._more:
            self._begin_watch()

    def unwatch(self) -> None:
        """The answer is complete, or given up: who leaves now has all that there is."""
        self._caller = None
        if self._watch is not None:
            self._watch.cancel()

    def left(self) -> bool:
        """Whether a cancellation that was just caught is the client's leaving; it is then no cancellation any more."""
        if self._left and (task := asyncio.current_task()) is not None and hasattr(task, "uncancel"):
            task.uncancel()  # Python 3.11 and later count them
        return self._left

    def _begin_watch(self) -> None:
        if self._caller is not None and self._watch is None:
            self._watch = asyncio.ensure_future(self._until_left())

    async def _until_left(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._caller is not None:
            self._left = True
            self._caller.cancel()
