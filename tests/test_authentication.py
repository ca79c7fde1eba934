"""The prefix is gone before any authentication inside: under it a key is asked for as without it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.routing import Mount, Router

from otel_gym import CaptureMiddleware, Settings, instrument, zero_code
from otel_gym.testing import Exchange, answer
from otel_gym_jsonl import CaptureStore
from tests.taken import taken

CHAT = "/v1/chat/completions"
KEY = (b"authorization", b"Bearer secret")
REFUSED = {"error": "no key"}


class BaseKey(BaseHTTPMiddleware):
    """Protects `/v1`, as many servers do."""

    async def dispatch(self, request: Request, call_next: Any) -> Any:
        if request.url.path.startswith("/v1") and request.headers.get("authorization") != KEY[1].decode():
            return JSONResponse(REFUSED, 401)
        return await call_next(request)


class PureKey:
    """The same in pure ASGI: vLLM's way."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/v1") and KEY not in scope["headers"]:
            await JSONResponse(REFUSED, 401)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def needs_key(authorization: Annotated[str | None, Header()] = None) -> None:
    if authorization != KEY[1].decode():
        raise HTTPException(401, "no key")


async def hi() -> JSONResponse:
    return JSONResponse(answer("chat", "hi"))


def with_route(app: FastAPI) -> FastAPI:
    app.add_api_route(CHAT, hi, methods=["POST"])
    return app


def server(protection: str) -> FastAPI:
    return with_route(FastAPI(dependencies=[Depends(needs_key)] if protection == "dependency" else []))


def protect(app: FastAPI, protection: str) -> None:
    if protection != "dependency":
        app.add_middleware(BaseKey if protection == "base" else PureKey)


def wrapped(protection: str, settings: Settings) -> Any:
    app = server(protection)
    protect(app, protection)
    return CaptureMiddleware(app, settings)


def added_last(protection: str, settings: Settings) -> Any:
    app = server(protection)
    protect(app, protection)
    app.add_middleware(CaptureMiddleware, settings=settings)
    return app


class Guarded(FastAPI):
    """Asks for the key in its own call, outside of all middleware."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await PureKey(super().__call__)(scope, receive, send)


def instrumented_subclass(protection: str, settings: Settings) -> Any:
    return instrument(with_route(Guarded()), settings)


def zero_code_of(app: Any, settings: Settings) -> Any:
    """What uvicorn serves, where nothing of ours stands in the code."""
    zero_code.activate(settings)
    return taken(app)


def zero_code_middleware(protection: str, settings: Settings) -> Any:
    app = server(protection)
    protect(app, protection)
    return zero_code_of(app, settings)


def zero_code_subclass(protection: str, settings: Settings) -> Any:
    return zero_code_of(with_route(Guarded()), settings)


def zero_code_wrapped(protection: str, settings: Settings) -> Any:
    return zero_code_of(PureKey(with_route(FastAPI())), settings)


def zero_code_wrapped_and_instrumented(protection: str, settings: Settings) -> Any:
    return zero_code_of(PureKey(instrument(with_route(FastAPI()), settings)), settings)


def zero_code_mounted(protection: str, settings: Settings) -> Any:
    app = Starlette(routes=[Mount("/", with_route(FastAPI()))])
    app.add_middleware(PureKey)
    return zero_code_of(app, settings)


def zero_code_router(protection: str, settings: Settings) -> Any:
    return zero_code_of(PureKey(Router([Mount("/", with_route(FastAPI()))])), settings)


def instrumented_first(protection: str, settings: Settings) -> Any:
    app = instrument(server(protection), settings)
    protect(app, protection)
    return app


def instrumented_last(protection: str, settings: Settings) -> Any:
    app = server(protection)
    protect(app, protection)
    return instrument(app, settings)


IN_MIDDLEWARE = [wrapped, added_last, instrumented_first, instrumented_last, zero_code_middleware]
FURTHER_OUT = [
    instrumented_subclass,
    zero_code_subclass,
    zero_code_wrapped,
    zero_code_wrapped_and_instrumented,
    zero_code_mounted,
    zero_code_router,
]


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    zero_code.deactivate()


@pytest.mark.parametrize("capture", [True, False], ids=["on", "off"])
@pytest.mark.parametrize(
    ("make", "protection"),
    [
        *itertools.product(IN_MIDDLEWARE, ("base", "pure", "dependency")),
        *((make, "further out") for make in FURTHER_OUT),
    ],
)
async def test_without_a_key_prefixed_and_plain_calls_are_refused_alike(
    make: Any, protection: str, capture: bool, tmp_path: Path
) -> None:
    settings = Settings(observability_enabled=capture, model_call_capture_dir=tmp_path)
    app = make(protection, settings)
    statuses = {}
    for prefix in ("", "/ng-rollout/0-0", "/ng-rollout/0-0/training-token-capture", "/ng-rollout/.."):
        for headers in ((), (KEY,)):
            async with Exchange(app, prefix + CHAT, headers=[(b"host", b"model.test"), *headers]) as call:
                await call.rest()
            statuses[prefix, bool(headers)] = call.received[0]["status"]
    assert {key: 200 if key[1] else 401 for key in statuses} == statuses
    recorded = [(record["status_code"], record["error_category"]) for record in CaptureStore(tmp_path).read("0-0")]
    assert ([(401, "auth"), (200, None)] * 2 if capture else []) == recorded


@pytest.mark.parametrize("make", [lambda: PureKey(with_route(FastAPI())), lambda: with_route(Guarded())])
async def test_where_no_known_server_takes_the_application_the_prefix_stays(make: Any, tmp_path: Path) -> None:
    """The guard lets the prefixed path pass, and so does the prefix: nothing is served without a key."""
    zero_code.activate(Settings(observability_enabled=True, model_call_capture_dir=tmp_path))
    for headers, path in itertools.product(((), (KEY,)), (f"/ng-rollout/0-0{CHAT}", CHAT)):
        async with Exchange(make(), path, headers=[(b"host", b"model.test"), *headers]) as call:
            await call.rest()
        assert (404 if path != CHAT else 200 if headers else 401) == call.received[0]["status"], (path, headers)
