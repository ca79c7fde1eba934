"""The gateway's own door: no key, no call."""

from __future__ import annotations

from typing import Final

from otel_gym.asgi import App, Receive, Scope, Send
from otel_gym.gateway.failures import GatewayFailure, send_failure
from otel_gym.gateway.keys import ClientKeys
from otel_gym.gateway.outcomes import Outcome

_REFUSED: Final = GatewayFailure(
    401,
    "invalid_api_key",
    "This gateway does not know the API key of this request: use one that its owner has given out.",
    Outcome(False, None, "local", "unknown_client_key"),
)


class Access:
    """Answers 401 to requests without a known key.

    It stands outside of the capture: a stranger must not be able to write into a rollout's file. Keys are looked for in
    headers alone, so the prefix of the path, which the capture takes off, is no matter here.

    Args:
        app: for those who are admitted.
        keys: of the clients.
    """

    def __init__(self, app: App, keys: ClientKeys) -> None:
        self.app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan" or self._keys.admit(scope["headers"]):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await send_failure(scope, send, _REFUSED)
        else:
            await receive()  # websocket.connect; a close before it is accepted is an answer of 403
            await send({"type": "websocket.close"})
