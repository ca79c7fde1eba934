from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from otel_gym import CaptureMiddleware, Settings, current_rollout_id, instrument, uninstrument
from otel_gym.errors import SettingsError
from otel_gym.testing import Exchange, ScriptedModel, answer
from otel_gym_jsonl import CaptureStore

CHAT = "/v1/chat/completions"
CALL = f"/ng-rollout/0-0{CHAT}"
HI = answer("chat", "hi")


class Captured:
    """A capture directory, and what lies in it."""

    def __init__(self, directory: Path) -> None:
        self.settings = Settings(observability_enabled=True, model_call_capture_dir=directory)
        self.store = CaptureStore(directory)

    def count(self, rollout_id: str = "0-0") -> int:
        return len(self.store.read(rollout_id))


@pytest.fixture
def captured(tmp_path: Path) -> Captured:
    return Captured(tmp_path)


async def hi(request: Request) -> JSONResponse:
    await request.body()
    return JSONResponse(HI, headers={"x-rollout": str(current_rollout_id()), "x-path": request.url.path})


def fastapi_app() -> FastAPI:
    app = FastAPI()
    app.add_api_route(CHAT, hi, methods=["POST"])
    return app


def starlette_app() -> Starlette:
    return Starlette(routes=[Route(CHAT, hi, methods=["POST"])])


MAKERS = pytest.mark.parametrize("make", [fastapi_app, starlette_app])


async def ask(app: Any, path: str = CALL, **more: Any) -> Exchange:
    async with Exchange(app, path, **more) as call:
        await call.rest()
    return call


def header(call: Exchange, name: bytes) -> str:
    value: bytes = dict(call.received[0]["headers"])[name]
    return value.decode()


@MAKERS
async def test_an_instrumented_application_is_captured(make: Any, captured: Captured) -> None:
    app = make()
    assert app is instrument(app, captured.settings)
    call = await ask(app)
    assert (200, "0-0", CHAT) == (call.received[0]["status"], header(call, b"x-rollout"), header(call, b"x-path"))
    assert HI == captured.store.read("0-0")[0]["response"]


@MAKERS
async def test_instrumenting_again_changes_nothing(make: Any, captured: Captured, tmp_path: Path) -> None:
    app = instrument(make(), captured.settings)
    instrument(app, Settings(observability_enabled=False))
    instrument(app)
    await ask(app)
    assert 1 == captured.count()


@MAKERS
async def test_an_application_can_be_given_back_and_instrumented_anew(make: Any, captured: Captured) -> None:
    app = instrument(make(), captured.settings)
    await ask(app)
    assert app is uninstrument(app)
    assert 404 == (await ask(app)).received[0]["status"]
    assert 200 == (await ask(app, CHAT)).received[0]["status"]
    uninstrument(app)
    uninstrument(make())
    assert 1 == captured.count()
    instrument(app, captured.settings)
    await ask(app)
    assert 2 == captured.count()


@MAKERS
async def test_other_applications_of_the_process_are_left_alone(make: Any, captured: Captured) -> None:
    instrument(make(), captured.settings)
    assert 404 == (await ask(make())).received[0]["status"]
    assert 0 == captured.count()


class Marks(BaseHTTPMiddleware):
    """Puts a mark on the scope and on the answer, and shows the path that it sees."""

    async def dispatch(self, request: Request, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["x-seen"] = request.url.path
        return response


@pytest.mark.parametrize("order", ["before", "after"])
async def test_middleware_and_routes_may_come_before_or_after(order: str, captured: Captured) -> None:
    app = FastAPI()
    if order == "before":
        instrument(app, captured.settings)
    router = APIRouter()
    router.add_api_route(CHAT, hi, methods=["POST"])
    app.include_router(router)
    app.add_middleware(Marks)
    if order == "after":
        instrument(app, captured.settings)
    call = await ask(app)
    assert (CHAT, 1) == (header(call, b"x-seen"), captured.count())


async def test_an_application_that_has_served_already_can_be_instrumented(captured: Captured) -> None:
    app = fastapi_app()
    await ask(app, CHAT)
    instrument(app, captured.settings)
    await ask(app)
    assert 1 == captured.count()


@pytest.mark.parametrize("sub", [fastapi_app, starlette_app])
@pytest.mark.parametrize("both", [False, True])
async def test_a_call_of_a_mounted_application_is_taken_once(sub: Any, both: bool, captured: Captured) -> None:
    mounted = sub()
    app = FastAPI()
    app.mount("/", mounted)
    instrument(app, captured.settings)
    if both:
        instrument(mounted, captured.settings)
    call = await ask(app)
    assert (200, 1) == (call.received[0]["status"], captured.count())


async def test_a_mounted_application_can_be_captured_alone(captured: Captured) -> None:
    mounted = instrument(fastapi_app(), captured.settings)
    app = Starlette(routes=[Mount("/models", mounted)])
    call = await ask(app, f"/models{CALL}")
    assert (200, "0-0", 1) == (call.received[0]["status"], header(call, b"x-rollout"), captured.count())
    assert f"/models{CHAT}" == header(call, b"x-path")


@pytest.mark.parametrize(
    "chain",
    [
        lambda app, settings: CaptureMiddleware(instrument(app, settings), settings),
        lambda app, settings: instrument(with_added(app, settings), settings),
        lambda app, settings: CaptureMiddleware(with_added(instrument(app, settings), settings), settings),
        lambda app, settings: with_added(with_added(app, settings), settings),
    ],
)
async def test_however_many_are_in_the_chain_a_call_is_taken_once(chain: Any, captured: Captured) -> None:
    app = chain(fastapi_app(), captured.settings)
    call = await ask(app, f"/ng-rollout/0-0/training-token-capture{CHAT}")
    assert (200, 1, CHAT) == (call.received[0]["status"], captured.count(), header(call, b"x-path"))
    assert ["0-0.capture.jsonl"] == [path.name for path in captured.store.directory.iterdir()]


def with_added(app: Any, settings: Settings) -> Any:
    app.add_middleware(CaptureMiddleware, settings=settings)
    return app


async def test_the_middleware_can_be_named_to_the_constructor(captured: Captured) -> None:
    routes = [Route(CHAT, hi, methods=["POST"])]
    app = Starlette(routes=routes, middleware=[Middleware(CaptureMiddleware, settings=captured.settings)])
    await ask(app)
    assert 1 == captured.count()


async def test_the_root_path_of_the_application_counts(captured: Captured) -> None:
    app = instrument(FastAPI(), captured.settings)
    app.root_path = "/proxy"  # as FastAPI(root_path=…) sets it, which is deprecated and warns
    app.add_api_route(CHAT, hi, methods=["POST"])
    for path in (CALL, f"/proxy{CALL}"):
        call = await ask(app, path)
        assert 200 == call.received[0]["status"], path
    assert 2 == captured.count()


async def test_a_call_of_a_subclass_sees_the_path_without_prefix_whoever_else_is_captured(captured: Captured) -> None:
    seen = []

    class Looking(FastAPI):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            seen.append(scope["path"])
            await super().__call__(scope, receive, send)

    class LookingTwice(Looking):
        pass

    instrument(fastapi_app(), captured.settings)
    apps = [instrument(kind(), captured.settings) for kind in (Looking, LookingTwice)]
    for app in apps:
        app.add_api_route(CHAT, hi, methods=["POST"])
        assert 200 == (await ask(app)).received[0]["status"]
    assert ([CHAT, CHAT], 2) == (seen, captured.count())
    assert 404 == (await ask(Looking())).received[0]["status"]
    assert 404 == (await ask(uninstrument(apps[0]))).received[0]["status"]


def test_lifespan_state_reaches_the_application(captured: Captured) -> None:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        yield {"model": "m-7"}

    async def state(request: Request) -> JSONResponse:
        request.state.nemo_gym_model_execution = {
            "upstream_attempted": False,
            "response_source": "local",
            "upstream_status_code": None,
            "local_response_reason": "context_length_exceeded",
        }
        return JSONResponse({"model": request.state.model})

    app = instrument(FastAPI(lifespan=lifespan), captured.settings)
    app.add_api_route(CHAT, state, methods=["POST"])
    with TestClient(app) as client:
        assert {"model": "m-7"} == client.post(CALL, json={}).json()
    [record] = captured.store.read("0-0")
    assert ("local", "context_length_exceeded") == (record["response_source"], record["error_category"])


async def test_a_redirect_of_the_framework_stays_in_the_rollout(captured: Captured) -> None:
    app = instrument(fastapi_app(), captured.settings)
    call = await ask(app, f"{CALL}/")
    assert (307, f"http://model.test{CALL}") == (call.received[0]["status"], header(call, b"location"))


@pytest.mark.parametrize("app", [ScriptedModel(), CaptureMiddleware, "app", None])
def test_only_starlette_applications_can_be_instrumented(app: Any) -> None:
    with pytest.raises(TypeError, match=r"app = otel_gym\.CaptureMiddleware\(app\)"):
        instrument(app)


def test_a_setting_that_cannot_be_used_is_said_at_once_and_leaves_the_application_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    app = fastapi_app()
    with pytest.raises(SettingsError, match="cannot be used"):
        instrument(app, Settings(observability_enabled=True, model_call_capture_dir=tmp_path / "file"))
    with TestClient(app) as client:
        assert (200, 404) == (client.post(CHAT, json={}).status_code, client.post(CALL, json={}).status_code)


async def test_off_the_prefix_is_removed_and_nothing_else() -> None:
    app = instrument(fastapi_app(), Settings(observability_enabled=False))
    call = await ask(app)
    assert (200, CHAT) == (call.received[0]["status"], header(call, b"x-path"))


# ---- settings that cannot be used


@pytest.mark.parametrize("served", ["instrument(FastAPI())", "CaptureMiddleware(FastAPI())"])
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("OTEL_GYM_MODEL_CALL_CAPTURE_DIR", "relative", "got 'relative'; allowed: an absolute path"),
        ("OTEL_GYM_MODEL_CALL_CAPTURE_DIR", "/proc/no", "got '/proc/no', which cannot be used"),
        ("OTEL_GYM_OBSERVABILITY_ENABLED", "perhaps", "got 'perhaps'; allowed: true or false"),
        ("OTEL_GYM_CONFIG_FILE", "/no/such/file", "got '/no/such/file', which cannot be read"),
    ],
)
def test_in_the_code_of_an_application_the_message_is_the_last_line_below_one_traceback(
    served: str, name: str, value: str, message: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"from fastapi import FastAPI; import otel_gym; otel_gym.{served}"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), name: value},
        capture_output=True,
        text=True,
        timeout=60,
    )
    last = done.stderr.splitlines()[-1]
    assert (1, 1) == (done.returncode, done.stderr.count("Traceback"))
    assert last.startswith(f"otel_gym.errors.SettingsError: {name}: {message}")
    assert 2 == last.count("; "), last  # what was got; what is allowed; what to do
