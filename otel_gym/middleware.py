"""The edge: pure ASGI, around the whole application, outside of its authentication."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from otel_gym import correlation
from otel_gym.asgi import ROUTE, TAKEN, App, Message, Receive, Scope, Send, header_values
from otel_gym.calls import Call
from otel_gym.content_encoding import encoding_of
from otel_gym.correlation import Route
from otel_gym.dialects import DIALECTS, Dialect
from otel_gym.errors import OtelGymError
from otel_gym.exchange import MODEL_CALL_ID, Exchange
from otel_gym.provider import Pipeline, pipeline_for
from otel_gym.redirects import redirected
from otel_gym.refusal import refuse
from otel_gym.settings import Settings
from otel_gym.token_sink import TokenSink, UnstagedCalls
from otel_gym.unattributed import Unattributed
from otel_gym.websockets import asks_for_websocket, refuse_websocket
from otel_gym_jsonl.files import is_rollout_id

DRAIN_SECONDS: Final = 10.0
# Extensions by which an application hands over a file instead of its bytes: the record would have no body.
_BODILESS = frozenset({"http.response.pathsend", "http.response.zerocopysend"})


class CaptureMiddleware:
    """Captures the model calls that come in under `/ng-rollout/<rollout_id>/`, and takes the prefix off every path.

    What the client receives is byte for byte what the application sent; a client that has seen the end of an answer
    finds its record on disk. Other calls pass untouched. With capture off only the prefix is removed.

    Args:
        app: any ASGI application.
        settings: read from the environment when not given, so that servers which construct middleware themselves
            (`vllm serve --middleware otel_gym.CaptureMiddleware`) need nothing else.
        token_sink: told of training rollouts whose calls went past the token capture, with capture on or off.

    Raises:
        SettingsError: capture is on and its directory, or another setting, cannot be used. Where Starlette makes the
            middleware in its first call, the server's start fails with it instead.
    """

    settings: Settings

    def __init__(self, app: App, settings: Settings | None = None, *, token_sink: TokenSink | None = None) -> None:
        self.app = app if token_sink is None else UnstagedCalls(app, token_sink)
        self.unattributed = Unattributed()
        self._pipeline: Pipeline | None = None
        self._refusal: OtelGymError | None = None
        try:
            self.settings = Settings() if settings is None else settings
            if self.settings.observability_enabled:
                self._pipeline = pipeline_for(self.settings)
                self.unattributed = Unattributed(self.settings.model_call_capture_dir)
        except OtelGymError as error:
            if not _is_made_in_a_call():
                raise
            self._refusal = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        kind = scope["type"]
        if self._refusal is not None:
            await refuse(self._refusal, scope, receive, send)
        elif kind == "lifespan" and self._pipeline is not None:
            await self._lifespan(self._pipeline, scope, receive, send)
        elif kind not in ("http", "websocket") or TAKEN in scope:
            await self.app(scope, receive, send)
        else:
            await self._request(scope, receive, send)

    async def aclose(self) -> None:
        """Make everything accepted durable, and give threads and file handles back. A later call starts anew."""
        if self._pipeline is not None:
            await self._pipeline.aclose()

    async def _lifespan(self, pipeline: Pipeline, scope: Scope, receive: Receive, send: Send) -> None:
        async def drained_send(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                pipeline.is_drained = True
                await pipeline.look_for_destination()  # the application may have set one up by now
            if message["type"].startswith("lifespan.shutdown."):
                await pipeline.drain(DRAIN_SECONDS)
            await send(message)

        await self.app(scope, receive, drained_send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = scope[ROUTE] if ROUTE in scope else correlation.find_route(scope)
        inner = dict(scope)
        inner[TAKEN if self._pipeline is not None else ROUTE] = route
        if route is not None:
            inner["path"] = route.path
            if "raw_path" in scope:
                inner["raw_path"] = route.raw_path
        pipeline = self._pipeline
        if pipeline is None:
            await self.app(inner, receive, send)
            return
        dialect = DIALECTS.get(_below_root(scope, route))
        if route is not None and dialect is not None and asks_for_websocket(scope):
            refused = self.settings.websockets == "refuse"
            self.unattributed.websocket(scope, route.rollout_id, refused)
            if refused:
                await refuse_websocket(scope, receive, send)
                return
        if dialect is not None and (scope["type"] != "http" or scope["method"].upper() != "POST"):
            dialect = None  # a probe, no model call
        elif dialect is None and route is not None and _stands_before_root(scope, route):
            self.unattributed.before_root(scope, route.rollout_id)
        rollout_id = self._declared(scope, dialect) if route is None else route.rollout_id
        outer = correlation.enter(rollout_id)
        try:
            if dialect is not None and _trio_runs():
                self.unattributed.no_asyncio(scope)
            elif dialect is not None and rollout_id is not None and is_rollout_id(rollout_id):
                call = Call(rollout_id, dialect, self.settings.body_limit_bytes, self.settings.model_server_name)
                pipeline.arrived(call, inner)
                await self._capture(call, Exchange(call, pipeline, inner, route, receive, send))
                return
            elif dialect is not None:
                self.unattributed.call(scope, rollout_id)
            await self.app(inner, receive, send if route is None else _redirecting(send, scope, route))
        finally:
            correlation.leave(outer)

    def _declared(self, scope: Scope, dialect: Dialect | None) -> str | None:
        """The rollout id of a model call without a prefix, where settings name another source."""
        settings = self.settings
        if dialect is None or (settings.rollout_id_header is None and not settings.rollout_id_baggage):
            return None
        return correlation.declared_rollout_id(
            scope.get("headers", ()), settings.rollout_id_header, settings.rollout_id_baggage
        )

    async def _capture(self, call: Call, exchange: Exchange) -> None:
        scope = exchange.scope
        _read_headers(scope, call)
        scope[MODEL_CALL_ID] = call.model_call_id
        scope.setdefault("state", {})
        extensions = scope.get("extensions")
        if extensions and not _BODILESS.isdisjoint(extensions):
            scope["extensions"] = {key: value for key, value in extensions.items() if key not in _BODILESS}
        ancestry = call.ancestry
        try:
            if ancestry is None:
                await self.app(scope, exchange.receive, exchange.send)
            else:
                ancestry.enter()
                try:
                    await self.app(scope, exchange.receive, exchange.send)
                finally:
                    ancestry.leave()
        except BaseException as error:
            await exchange.raised(error)
            raise
        await exchange.returned()


def _trio_runs() -> bool:
    """Whether the server runs on trio: calls wait for their records on asyncio's loop."""
    if "trio" not in sys.modules:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False


def _is_made_in_a_call() -> bool:
    """Whether Starlette makes its middleware now: it does so in its first call, the lifespan.

    Servers take what is raised there for an application without lifespan, and go on; each request would fail instead.
    """
    frame = sys._getframe(1)
    while frame.f_code.co_name != "build_middleware_stack":
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return True


def _below_root(scope: Scope, route: Route | None) -> str:
    """The path that the application routes by."""
    if route is not None:
        return route.rest
    path: str = scope["path"]
    root = correlation.root_of(scope)
    return path[len(root) :] if root and path.startswith(root + "/") else path


def _stands_before_root(scope: Scope, route: Route) -> bool:
    """Whether the prefix stands before the root path instead of behind it, in what is served as a model call."""
    root = correlation.root_of(scope)
    return (
        bool(root)
        and not route.root
        and route.rest.startswith(root + "/")
        and route.rest[len(root) :] in DIALECTS
        and scope["type"] == "http"
        and scope["method"].upper() == "POST"
    )


def _read_headers(scope: Scope, call: Call) -> None:
    headers = scope.get("headers", ())
    call.request.encoding = encoding_of(headers)
    sessions = set(filter(None, header_values(headers, b"x-session-id")))
    if len(sessions) == 1:
        call.client_session_id = sessions.pop().decode("latin-1")


def _redirecting(send: Send, scope: Scope, route: Route) -> Send:
    """A send that keeps the client of a redirect under its prefix."""

    async def redirecting_send(message: Message) -> None:
        await send(redirected(scope, route, message) if message["type"] == "http.response.start" else message)

    return redirecting_send
