"""One request on its way to an upstream, and the answer on its way back: each byte as it came, each piece at once."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import httpx

from otel_gym.asgi import Receive, Scope, Send
from otel_gym.correlation import percent_encoded
from otel_gym.gateway.attempts import Attempt
from otel_gym.gateway.failures import (
    ClientLeft,
    GatewayFailure,
    UpstreamConnectionError,
    UpstreamTimeoutError,
    send_failure,
)
from otel_gym.gateway.headers import content_length, to_client, to_upstream
from otel_gym.gateway.keys import without_keys
from otel_gym.gateway.models import model_of
from otel_gym.gateway.outcomes import Outcome
from otel_gym.gateway.request_bodies import RequestBody
from otel_gym.gateway.upstreams import Upstream, Upstreams

logger = logging.getLogger(__name__)

_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "DELETE"})


class Proxying:
    """The responder of one request: made inside the call, never shared.

    Args:
        client: speaks to the upstreams.
        upstreams: to choose from.
        own_keys: clients have keys of the gateway, which no upstream must see.
        scope, receive, send: of the server, the rollout's prefix taken off.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        upstreams: Upstreams,
        own_keys: bool,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        self._client = client
        self._upstreams = upstreams
        self._own_keys = own_keys
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
        only = self._upstreams.only
        if only is not None:
            return only
        if self._scope["method"] in _BODILESS:
            return self._upstreams.without_model
        model = await model_of(await self._body.whole(), self._scope["headers"])
        if model is None:
            return self._upstreams.without_model
        upstream = self._upstreams.of_model(model)
        if upstream is None:
            raise GatewayFailure(
                404,
                "model_not_found",
                f"No upstream of this gateway serves the model {model!r:.200}.",
                Outcome(False, None, "local", "model_not_found"),
            )
        return upstream

    async def _asked(self, upstream: Upstream) -> httpx.Response:
        request = self._request(upstream)
        try:
            return await self._client.send(request, stream=True)
        except httpx.PoolTimeout as error:
            raise _failure(error, upstream, 504, "gateway_overloaded", attempted=False) from error
        except httpx.TimeoutException as error:
            raise _failure(error, upstream, 504, "upstream_timeout") from error
        except httpx.TransportError as error:
            raise _failure(error, upstream, 502, "upstream_unreachable") from error

    def _request(self, upstream: Upstream) -> httpx.Request:
        scope = self._scope
        headers = to_upstream(scope["headers"])
        if upstream.key is not None:
            headers = upstream.key.in_place(headers, upstream.key_header)
        elif self._own_keys:
            headers = without_keys(headers)
        content = self._body.content
        method: str = scope["method"]
        raw_path = scope.get("raw_path") or percent_encoded(scope["path"])
        target = upstream.target(raw_path, scope["query_string"])
        return httpx.Request(
            method,
            upstream.origin,
            headers=headers,
            content=content if content or method not in _BODILESS else None,
            # httpx would write the path anew, escape for escape.
            extensions={"target": target, "timeout": self._client.timeout.as_dict()},
        )

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
            async for piece in response.aiter_raw():
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
        self._body.unwatch()
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _fail(self, failure: GatewayFailure) -> None:
        self._attempt.answered(failure.status, ()).mark(failure.outcome).leave(self._scope)
        await send_failure(self._scope, self._send, failure)


def _failure(
    error: httpx.TransportError, upstream: Upstream, status: int, code: str, attempted: bool = True
) -> GatewayFailure:
    kind = type(error).__name__
    logger.warning("otel-gym gateway: upstream %r (%s): %s: %s", upstream.name, upstream.url, kind, error)
    message = f"The gateway got no answer from its upstream {upstream.name!r} ({kind})."
    return GatewayFailure(status, code, message, Outcome(attempted, None, "local", code))
