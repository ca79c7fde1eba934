"""How upstreams are asked: which one, under which key, and what becomes of one that does not answer."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Final

import httpx

from otel_gym.gateway.failures import GatewayFailure
from otel_gym.gateway.headers import Headers
from otel_gym.gateway.keys import without_keys
from otel_gym.gateway.outcomes import Outcome
from otel_gym.gateway.upstreams import Upstream, Upstreams

logger = logging.getLogger(__name__)

BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "DELETE"})
"""Methods whose requests have a body only where one came."""


class Asking:
    """Asks the upstreams of one gateway.

    Args:
        client: speaks to them.
        upstreams: to choose from.
        own_keys: clients have keys of the gateway, which no upstream must see.
    """

    def __init__(self, client: httpx.AsyncClient, upstreams: Upstreams, own_keys: bool) -> None:
        self.client = client
        self.upstreams = upstreams
        self._own_keys = own_keys
        self._timeout = client.timeout.as_dict()

    def of_model(self, model: str | None) -> Upstream:
        """The upstream of a model; None is no model call.

        Raises:
            GatewayFailure: none serves it.
        """
        if self.upstreams.only is not None:
            return self.upstreams.only
        if model is None:
            return self.upstreams.without_model
        upstream = self.upstreams.of_model(model)
        if upstream is None:
            raise GatewayFailure(
                404,
                "model_not_found",
                f"No upstream of this gateway serves the model {model!r:.200}.",
                Outcome(False, None, "local", "model_not_found"),
            )
        return upstream

    async def ask(
        self, upstream: Upstream, method: str, target: bytes, headers: Headers, content: bytes | AsyncIterator[bytes]
    ) -> httpx.Response:
        """Send a request; the answer's body is still to be read, and the answer to be closed.

        Args:
            target: path and query on the upstream.
            headers: of the client, those of its connection taken out.
            content: of the request, whole or in pieces.

        Raises:
            GatewayFailure: no answer came.
        """
        if upstream.key is not None:
            headers = upstream.key.in_place(headers, upstream.key_header)
        elif self._own_keys:
            headers = without_keys(headers)
        request = httpx.Request(
            method,
            upstream.origin,
            headers=headers,
            content=content if content or method not in BODILESS else None,
            # httpx would write the path anew, escape for escape.
            extensions={"target": target, "timeout": self._timeout},
        )
        try:
            return await self.client.send(request, stream=True)
        except httpx.PoolTimeout as error:
            raise failure(error, upstream, 504, "gateway_overloaded", attempted=False) from error
        except httpx.TimeoutException as error:
            raise failure(error, upstream, 504, "upstream_timeout") from error
        except httpx.TransportError as error:
            raise failure(error, upstream, 502, "upstream_unreachable") from error


def failure(
    error: httpx.RequestError, upstream: Upstream, status: int, code: str, attempted: bool = True
) -> GatewayFailure:
    """What the client hears of an upstream that gave no answer; the log hears more."""
    kind = type(error).__name__
    logger.warning("otel-gym gateway: upstream %r (%s): %s: %s", upstream.name, upstream.url, kind, error)
    message = f"The gateway got no answer from its upstream {upstream.name!r} ({kind})."
    return GatewayFailure(status, code, message, Outcome(attempted, None, "local", code))
