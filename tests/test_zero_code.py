"""Capture of a whole process: which applications, with what settings, and what it costs those that serve nothing."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import starlette.applications
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from otel_gym import CaptureMiddleware, Settings, instrument, served, starlette_call, uninstrument, zero_code
from otel_gym.settings import CONFIG_FILE_VARIABLE, variable
from otel_gym.testing import Exchange, ScriptedModel, answer
from otel_gym_jsonl import CaptureStore
from tests.taken import taken

CHAT = "/v1/chat/completions"
CALL = f"/ng-rollout/0-0{CHAT}"
DIRECTORY = variable("model_call_capture_dir")


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    zero_code.deactivate()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(observability_enabled=True, model_call_capture_dir=tmp_path / "captures")


async def hi(request: Request) -> JSONResponse:
    await request.body()
    return JSONResponse(answer("chat", "hi"), headers={"x-path": request.url.path})


def fastapi_app() -> FastAPI:
    app = FastAPI()
    app.add_api_route(CHAT, hi, methods=["POST"])
    return app


def starlette_app() -> Starlette:
    return Starlette(routes=[Route(CHAT, hi, methods=["POST"])])


async def ask(app: Any, path: str = CALL) -> int:
    async with Exchange(app, path) as call:
        await call.rest()
    status: int = call.received[0]["status"]
    return status


def count(settings: Settings, rollout_id: str = "0-0") -> int:
    directory = settings.model_call_capture_dir
    assert directory is not None
    return len(CaptureStore(directory).read(rollout_id))


MAKERS = pytest.mark.parametrize("make", [fastapi_app, starlette_app])

# ---- which applications


@MAKERS
async def test_what_a_server_takes_from_then_on_is_captured_made_before_or_after(make: Any, settings: Settings) -> None:
    before = make()
    assert (404, before) == (await ask(before), taken(before))
    zero_code.activate(settings)
    assert (200, 200) == (await ask(taken(before)), await ask(taken(make())))
    assert 2 == count(settings)


async def test_so_is_an_application_of_no_framework(settings: Settings) -> None:
    zero_code.activate(settings)
    assert (200, 1) == (await ask(taken(ScriptedModel.of(answer("chat", "hi")))), count(settings))


@MAKERS
async def test_a_mounted_application_is_captured_once_by_the_outermost(make: Any, settings: Settings) -> None:
    zero_code.activate(settings)
    app = taken(Starlette(routes=[Mount("/", make())]))
    assert (200, 1) == (await ask(app), count(settings))


async def test_middleware_in_the_code_makes_no_second_record(settings: Settings) -> None:
    zero_code.activate(settings)
    app = fastapi_app()
    app.add_middleware(CaptureMiddleware, settings=settings)
    outermost = CaptureMiddleware(app, settings)
    assert outermost is taken(outermost)
    assert (200, 1) == (await ask(outermost), count(settings))
    assert (200, 2) == (await ask(taken(app)), count(settings))


async def test_an_application_with_a_word_of_its_own_keeps_it(settings: Settings, tmp_path: Path) -> None:
    own = Settings(observability_enabled=True, model_call_capture_dir=tmp_path / "own")
    zero_code.activate(settings)
    later = fastapi_app()
    for app in (taken(instrument(fastapi_app(), own)), taken(later)):
        instrument(later, own)
        assert 200 == await ask(app)
    assert (0, 2) == (count(settings), count(own))
    assert (404, 404) == (await ask(taken(uninstrument(fastapi_app()))), await ask(uninstrument(later)))
    assert 0 == count(settings)


async def test_it_can_be_ended_and_begun_anew(settings: Settings, tmp_path: Path) -> None:
    app = fastapi_app()
    other = Settings(observability_enabled=True, model_call_capture_dir=tmp_path / "other")
    instrumentor = zero_code.OtelGymInstrumentor()
    for chosen in (settings, other):
        instrumentor.instrument(settings=chosen, tracer_provider=None)
        server = taken(app)
        assert (True, 200) == (instrumentor.is_instrumented_by_opentelemetry, await ask(server))
        instrumentor.uninstrument()
        assert (False, 404) == (instrumentor.is_instrumented_by_opentelemetry, await ask(server))
    assert (1, 1) == (count(settings), count(other))


async def test_a_patch_of_somebody_else_over_ours_is_no_loop(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    zero_code.activate(settings)
    ours = Starlette.__call__

    async def theirs(self: Any, scope: Any, receive: Any, send: Any) -> None:
        await ours(self, scope, receive, send)

    monkeypatch.setattr(Starlette, "__call__", theirs)
    zero_code.activate()
    app = instrument(fastapi_app(), settings)
    assert (200, 200, 2) == (await ask(app), await ask(taken(fastapi_app())), count(settings))


def test_a_class_that_stands_in_the_place_of_starlette_is_seen_through() -> None:
    """As opentelemetry-instrumentation-starlette puts one there."""

    class InItsPlace(Starlette):
        pass

    starlette_call.patch_starlette(InItsPlace)
    assert (Starlette, False) == (starlette_call.place(InItsPlace()), "__call__" in vars(InItsPlace))


async def test_what_an_unknown_server_serves_keeps_its_prefix_and_that_is_said_once(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be around authentication or inside of it: nobody knows."""
    monkeypatch.setattr(starlette_call, "_told", False)
    app = fastapi_app()
    instrument(fastapi_app(), settings)  # so that the class is patched
    assert 404 == await ask(app)
    zero_code.activate(settings)
    assert (200, 404, 404) == (await ask(app, CHAT), await ask(app), await ask(app))
    [said] = caplog.messages
    assert said.startswith(f"otel-gym: {CALL!r} is not captured, and keeps its prefix")
    assert ("app = otel_gym.CaptureMiddleware(app)" in said, 0) == (True, count(settings))


# ---- settings


async def test_they_are_read_when_a_server_takes_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zero_code.activate()
    app = fastapi_app()
    assert app is taken(app)  # the environment has no word of capture
    monkeypatch.setenv(DIRECTORY, str(tmp_path / "captures"))
    server = taken(app)
    assert (tmp_path / "captures").is_dir()
    assert 200 == await ask(server)
    assert 1 == len(CaptureStore(tmp_path / "captures").read("0-0"))


async def test_with_capture_off_the_prefix_is_removed_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    zero_code.activate()
    monkeypatch.setenv(variable("observability_enabled"), "false")
    assert 200 == await ask(taken(Starlette(routes=[Mount("/", fastapi_app())])))


def test_one_that_cannot_be_used_ends_the_server_before_it_serves(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(DIRECTORY, "relative")
    zero_code.activate()
    with pytest.raises(SystemExit) as ended:
        taken(fastapi_app())
    out, said = capfd.readouterr()
    assert (zero_code.FAILED_START, "", 1) == (ended.value.code, out, len(said.splitlines()))
    assert said.startswith(f"otel-gym: {DIRECTORY}: got 'relative'; allowed: ")


def test_so_does_a_fault_of_ours_with_its_traceback(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    def at_fault(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(CaptureMiddleware, "__init__", at_fault)
    zero_code.activate(settings)
    with pytest.raises(ZeroDivisionError):
        taken(fastapi_app())


# ---- processes that serve nothing

START = "from otel_gym.zero_code import OtelGymInstrumentor; OtelGymInstrumentor().instrument(); "
LOADED = "print(sorted({'pydantic', 'opentelemetry', 'orjson', 'logging', 'asyncio', 'starlette'} & set(sys.modules)))"


@pytest.mark.parametrize(
    ("code", "loaded"),
    [(LOADED, []), (f"import starlette.applications; before = set(sys.modules); {START} {LOADED}", None)],
)
def test_they_load_nothing_start_no_thread_and_say_nothing(code: str, loaded: list[str] | None, tmp_path: Path) -> None:
    script = f"import sys, threading, os; {START} {code}; print(threading.active_count(), os.listdir('.'))"
    done = run(script, tmp_path, {DIRECTORY: "not absolute"})
    said, threads = done.stdout.splitlines()
    assert ("", "1 []") == (done.stderr, threads)
    if loaded is not None:
        assert str(loaded) == said
    else:
        assert not {"pydantic", "opentelemetry", "orjson"} & set(eval(said))


def test_an_application_that_is_imported_later_is_patched_and_looks_untouched(tmp_path: Path) -> None:
    script = (
        f"{START} import inspect, starlette.applications as a; from importlib.machinery import SourceFileLoader as L; "
        "print('_otel_gym_original' in vars(a.Starlette), type(a.__loader__) is L, type(a.__spec__.loader) is L, "
        "'class Starlette' in inspect.getsource(a))"
    )
    done = run(script, tmp_path, {})
    assert ("True True True True\n", "") == (done.stdout, done.stderr)


def test_where_starlette_is_not_installed_nothing_happens(tmp_path: Path) -> None:
    script = (
        f"{START} import sys; sys.path = []\n"
        "try: import starlette.applications\n"
        "except ModuleNotFoundError as error: print(error.name)"
    )
    done = run(script, tmp_path, {})
    assert ("starlette\n", "") == (done.stdout, done.stderr)


def run(script: str, directory: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return subprocess.run(
        [sys.executable, "-c", script], cwd=directory, env=environment, capture_output=True, text=True, timeout=60
    )


def test_whatever_goes_wrong_the_process_starts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def at_fault(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(served, "capture_all", at_fault)
    zero_code.OtelGymInstrumentor().instrument()
    assert "ZeroDivisionError" in caplog.text
    monkeypatch.undo()
    monkeypatch.setattr(starlette_call, "patch_starlette", at_fault)
    zero_code.OtelGymInstrumentor().instrument()
    assert 2 == caplog.text.count("nothing is captured")


def test_the_source_of_starlette_can_still_be_read() -> None:
    zero_code.activate()
    assert "class Starlette" in inspect.getsource(starlette.applications)
    assert inspect.iscoroutinefunction(Starlette.__call__)


# ---- entry points


@pytest.mark.parametrize(
    ("group", "wanted"),
    [
        ("opentelemetry_instrumentor", zero_code.OtelGymInstrumentor),
        ("vllm.general_plugins", zero_code.plugin),
        ("sglang.srt.plugins", zero_code.plugin),
    ],
)
def test_the_entry_points_lead_here(group: str, wanted: Any) -> None:
    [found] = [entry for entry in entry_points(group=group) if entry.name == "otel_gym"]
    assert wanted is found.load()


@pytest.mark.parametrize(
    ("variables", "active"),
    [
        ({}, False),
        ({DIRECTORY: ""}, False),
        ({"OTEL_GYM_WRITER_THREADS": "2"}, False),
        ({DIRECTORY: "/captures"}, True),
        ({variable("observability_enabled"): "false"}, True),  # off, and the prefix is taken off the paths
        ({CONFIG_FILE_VARIABLE: "/config.yaml"}, True),
    ],
)
def test_a_plugin_does_something_where_the_environment_speaks_of_capture(
    variables: dict[str, str], active: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    zero_code.plugin()
    assert active == served.captures_all()


def test_what_a_plugin_looks_at_are_settings() -> None:
    fields = ("model_call_capture_dir", "observability_enabled")
    assert (*map(variable, fields), CONFIG_FILE_VARIABLE) == zero_code.SWITCHES
