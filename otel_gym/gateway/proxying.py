"""One request on its way to an upstream, and the answer on its way back: each byte as it came, each piece at once."""

from __future__ import annotations

import asyncio

import httpx

from otel_gym.asgi import Receive, Scope, Send
from otel_gym.correlation import percent_encoded
from otel_gym.gateway.asking import BODILESS, Asking
from otel_gym.gateway.attempts import Attempt
from otel_gym.gateway.failures import (
    ClientLeft,
    GatewayFailure,
    UpstreamConnectionError,
    UpstreamTimeoutError,
    send_failure,
)
from otel_gym.gateway.headers import content_length, to_client, to_upstream
from otel_gym.gateway.models import model_of
from otel_gym.gateway.outcomes import Outcome
from otel_gym.gateway.request_bodies import RequestBody
from otel_gym.gateway.upstreams import Upstream


class Proxying:
    """The responder of one request: made inside the call, never shared.

    Args:
        asking: of the gateway.
        scope, receive, send: of the server, the rollout's prefix taken off.
    """

    def __init__(self, asking: Asking, scope: Scope, receive: Receive, send: Send) -> None:
        self._asking = asking
        self._scope = scope
        self._send = send
        self._body = RequestBody(receive)
        self._attempt = Attempt.of(scope)

    async def run(self) -> None:
        """Serve it.

        Raises:
            ClientLeft: the client hung up.
            UpstreamConnectionError: the upstream failed behind the first byte of its answer.
        """
        body = self._body
        try:
            await body.begin()
            upstream = await self._upstream()
            body.watch()
            response = await self._asked(upstream)
            try:
                await self._pass_on(response)
            finally:
                body.unwatch()
                await response.aclose()
        except GatewayFailure as failure:
            body.unwatch()
            await self._fail(failure)
        except asyncio.CancelledError:
            body.unwatch()
            if body.left():
                raise ClientLeft from None
            raise

    # ------------------------------------------------------------------ there

    async def _upstream(self) -> Upstream:
        model = None
        if self._asking.upstreams.only is None and self._scope["method"] not in BODILESS:
            model = await model_of(await self._body.whole(), self._scope["headers"])
        return self._asking.of_model(model)

    async def _asked(self, upstream: Upstream) -> httpx.Response:
        scope = self._scope
        target = upstream.target(scope.get("raw_path") or percent_encoded(scope["path"]), scope["query_string"])
        headers = to_upstream(scope["headers"])
        return await self._asking.ask(upstream, scope["method"], target, headers, self._body.content)

    # ------------------------------------------------------------------ and back

    async def _pass_on(self, response: httpx.Response) -> None:
        send, status = self._send, response.status_code
        headers = to_client(response.headers.raw)
        outcome = Outcome.said_by(headers) or Outcome(True, status, "upstream")
        self._attempt.answered(status, headers).mark(outcome).leave(self._scope)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        left = content_length(headers)
        if left is not None and (self._scope["method"] == "HEAD" or status in (204, 304)):
            left = 0
        last = b""
        try:
            async for piece in _pieces(response):
                if left is not None:
                    left -= len(piece)
                    if left <= 0:  # with it the client has seen the end: the message has to say so
                        last += piece
                        continue
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except httpx.TimeoutException as error:
            raise UpstreamTimeoutError(f"the upstream fell silent in the middle of its answer: {error!r}") from error
        except httpx.TransportError as error:
            raise UpstreamConnectionError(f"the upstream broke off in the middle of its answer: {error!r}") from error
        await response.aclose()  # the connection is free for others while the record is written
        self._body.unwatch()
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _fail(self, failure: GatewayFailure) -> None:
        self._attempt.answered(failure.status, ()).mark(failure.outcome).leave(self._scope)
        await send_failure(self._scope, self._send, failure)


def _pieces(response: httpx.Response) -> httpx.AsyncByteStream:
    """The body as it comes, encoded as it is: what `aiter_raw` gives, without its costs for each piece."""
    stream = response.stream
    if not isinstance(stream, httpx.AsyncByteStream):
        raise TypeError(f"an answer of an async client has an async stream, got {type(stream).__name__}")
    return stream
