"""The prefix is gone before any authentication inside: under it a key is asked for as without it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse
from starlette.middleware.base import BaseHTTPMiddleware

from otel_gym import CaptureMiddleware, Settings, instrument
from otel_gym.testing import Exchange, answer
from otel_gym_jsonl import CaptureStore

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


def server(protection: str) -> FastAPI:
    app = FastAPI(dependencies=[Depends(needs_key)] if protection == "dependency" else [])
    app.add_api_route(CHAT, hi, methods=["POST"])
    return app


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


def instrumented_first(protection: str, settings: Settings) -> Any:
    app = instrument(server(protection), settings)
    protect(app, protection)
    return app


def instrumented_last(protection: str, settings: Settings) -> Any:
    app = server(protection)
    protect(app, protection)
    return instrument(app, settings)


@pytest.mark.parametrize("capture", [True, False], ids=["on", "off"])
@pytest.mark.parametrize("protection", ["base", "pure", "dependency"])
@pytest.mark.parametrize("make", [wrapped, added_last, instrumented_first, instrumented_last])
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
