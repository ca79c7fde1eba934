"""The gateway: an ASGI application in front of any OpenAI- or Anthropic-compatible server, with capture inside.

No web framework stands between: nothing answers in the upstream's place (`/docs`, `/openapi.json`, redirects for
slashes), and no header is made anew. A FastAPI application may mount it.
"""

from __future__ import annotations

import logging

import httpx

from otel_gym.asgi import App, Receive, Scope, Send
from otel_gym.gateway.access import Access
from otel_gym.gateway.asking import Asking
from otel_gym.gateway.attempts import Retries
from otel_gym.gateway.failures import ClientLeft, UpstreamConnectionError
from otel_gym.gateway.keys import ClientKeys
from otel_gym.gateway.proxying import Proxying
from otel_gym.gateway.staged import StagedCall, Staging, staged_route
from otel_gym.gateway.upstreams import Upstreams
from otel_gym.middleware import CaptureMiddleware
from otel_gym.served import CAPTURE
from otel_gym.settings import Settings
from otel_gym.websockets import refuse_websocket

logger = logging.getLogger(__name__)


class Gateway:
    """Passes everything on as it comes, both ways, and captures what is under a rollout's prefix.

    Args:
        client: speaks to the upstreams (`make_client`); closed with the gateway.
        upstreams: where requests go.
        settings: of the capture; read from the environment when not given.
        client_keys: of those who may call; None: everybody who reaches it.
        retries: further attempts after a failure, each recorded; 0: none.
        staging: the upstreams are workers that stage the tokens of training rollouts; None: they are not.

    Raises:
        SettingsError: capture is on and its directory, or another setting, cannot be used.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        upstreams: Upstreams,
        settings: Settings | None = None,
        *,
        client_keys: ClientKeys | None = None,
        retries: int = 0,
        staging: Staging | None = None,
    ) -> None:
        self._client = client
        self._asking = Asking(client, upstreams, client_keys is not None)
        self._staging = staging
        token_sink = None if staging is None else staging.log
        self.capture = CaptureMiddleware(self._serve, settings, token_sink=token_sink)
        app: App = self.capture
        if retries:
            app = Retries(app, retries)
        if client_keys is not None:
            app = Access(app, client_keys)
        self._app = app
        setattr(self, CAPTURE, None)  # it captures by itself, each attempt of a call: zero-code capture leaves it alone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        try:
            await self._app(scope, receive, send)
        except ClientLeft:
            pass  # it is recorded; nobody is there to be told
        except UpstreamConnectionError as error:
            # Returning without an end makes the server close the connection: what the upstream did to us.
            logger.warning("otel-gym gateway: %s", error)

    async def aclose(self) -> None:
        """Close the connections to the upstreams and make everything accepted durable."""
        await self._client.aclose()
        await self.capture.aclose()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await refuse_websocket(scope, receive, send)
        elif self._staging is not None and (route := staged_route(scope)) is not None:
            await StagedCall(self._asking, self._staging, route, scope, receive, send).run()
        else:
            await Proxying(self._asking, scope, receive, send).run()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self._client.aclose()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
