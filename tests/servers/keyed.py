"""Applications behind an API key that know nothing of otel-gym: what is done to them is done from outside.

`CONTRIB=on` adds OpenTelemetry's own instrumentation in their code, where a launcher does not.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route, Router

from otel_gym.asgi import App, Receive, Scope, Send
from otel_gym.testing import answer

CHAT = "/v1/chat/completions"
KEY = "Bearer secret"


class ApiKey:
    """Guards what lies below `/v1/`, as vLLM's does: a path that only looks different would pass."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        guarded = scope["type"] == "http" and scope["path"].startswith("/v1/")
        if guarded and (b"authorization", KEY.encode()) not in scope["headers"]:
            await JSONResponse({"error": {"message": "no key"}}, 401)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


async def chat(request: Request) -> JSONResponse:
    await request.body()
    return JSONResponse(answer("chat", "hi"), headers={"x-path": request.url.path, "x-pid": str(os.getpid())})


def _instrumented(app: Any) -> Any:
    if os.environ.get("CONTRIB") == "on":
        from opentelemetry import trace
        from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
        from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
        from opentelemetry.sdk.trace import TracerProvider

        if not isinstance(trace.get_tracer_provider(), TracerProvider):
            trace.set_tracer_provider(TracerProvider())
        if isinstance(app, FastAPI):
            FastAPIInstrumentor.instrument_app(app)
        else:
            app.add_middleware(OpenTelemetryMiddleware)
    return app


with_fastapi = FastAPI()
with_fastapi.add_api_route(CHAT, chat, methods=["POST"])
with_fastapi.mount("/mounted", Starlette(routes=[Route(CHAT, chat, methods=["POST"])]))
with_fastapi.add_middleware(ApiKey)
_instrumented(with_fastapi)

# Where the key is asked for outside of what is Starlette's.


class Guarded(FastAPI):
    """Asks for the key in its own call."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await ApiKey(super().__call__)(scope, receive, send)


def _unguarded(app: Starlette) -> Starlette:
    app.add_route(CHAT, chat, methods=["POST"])
    app.mount("/mounted", Starlette(routes=[Route(CHAT, chat, methods=["POST"])]))
    return app


with_wrapped = ApiKey(_unguarded(FastAPI()))
with_subclass = _unguarded(Guarded())
with_router = ApiKey(Router([Route(CHAT, chat, methods=["POST"]), Mount("/mounted", _unguarded(Starlette()))]))

with_starlette = Starlette(
    routes=[
        Route(CHAT, chat, methods=["POST"]),
        Mount("/mounted", Starlette(routes=[Route(CHAT, chat, methods=["POST"])])),
    ]
)
with_starlette.add_middleware(ApiKey)
_instrumented(with_starlette)


if __name__ == "__main__":
    import uvicorn

    framework, port, *workers = sys.argv[1:]
    if workers:  # in processes of their own, each of which imports this module
        uvicorn.run(f"tests.servers.keyed:with_{framework}", port=int(port), workers=int(workers[0]))
    else:
        uvicorn.run(globals()[f"with_{framework}"], port=int(port))
