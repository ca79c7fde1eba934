"""An agent's server answers on `/ng-rollout/<id>/v1/responses` as on its own `/v1/responses`.

    app = FastAPI()
    otel_gym.rollouts.agent(app)

Whoever calls the agent names the rollout in the URL; the agent carries it on with `url_path_for_request`, or, with a
client that `carry` has seen, without doing anything.
"""

from __future__ import annotations

from typing import Any, TypeVar

from otel_gym.asgi import App, Receive, Scope, Send
from otel_gym.correlation import enter, find_route, leave
from otel_gym.rollouts.urls import PREFIX_IN_SCOPE
from otel_gym_jsonl.files import is_rollout_id

A = TypeVar("A")

TWINNED = "/v1/responses"
"""The path that has a twin under each rollout's prefix."""


def agent(app: A) -> A:
    """Give a FastAPI or Starlette application its prefixed twins. Returns the application.

    To be called before the application serves; routes may be added later.

    Raises:
        TypeError: no Starlette application; any other ASGI application is wrapped: `RolloutRoutes(app)`.
    """
    add_middleware: Any = getattr(app, "add_middleware", None)
    if add_middleware is None:
        raise TypeError(
            f"agent() takes a FastAPI or Starlette application, not {type(app).__name__}; "
            "wrap any other ASGI application: app = otel_gym.rollouts.RolloutRoutes(app)"
        )
    add_middleware(RolloutRoutes)
    return app


class RolloutRoutes:
    """Takes a rollout's prefix off the path of `/v1/responses` and serves the request for that rollout.

    The application sees its own path; `otel_gym.current_rollout_id()` is the rollout, and `url_path_for_request` finds
    the prefix.
    """

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request (ASGI)."""
        route = find_route(scope) if scope["type"] == "http" else None
        if route is None or route.rest != TWINNED or not is_rollout_id(route.rollout_id):
            await self.app(scope, receive, send)
            return
        inner = {**scope, "path": route.path, "raw_path": route.raw_path, PREFIX_IN_SCOPE: route.prefix}
        outer = enter(route.rollout_id)
        try:
            await self.app(inner, receive, send)
        finally:
            leave(outer)
