from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_gym import CaptureMiddleware, Settings, current_rollout_id, provider
from otel_gym.errors import SettingsError
from otel_gym.testing import JSON, Exchange, ScriptedModel, answer, stream
from otel_gym_jsonl import CaptureStore
from otel_gym_jsonl.files import is_rollout_id
from otel_gym_jsonl.writer import Writer

CHAT = "/v1/chat/completions"
CALL = f"/ng-rollout/0-0{CHAT}"
HI = answer("chat", "hi")


def on(app: Any, directory: Path, **more: Any) -> CaptureMiddleware:
    return CaptureMiddleware(app, Settings(observability_enabled=True, model_call_capture_dir=directory, **more))


def off(app: Any) -> CaptureMiddleware:
    return CaptureMiddleware(app, Settings(observability_enabled=False))


async def ask(app: Any, path: str = CALL, body: bytes = b"{}", **more: Any) -> Exchange:
    async with Exchange(app, path, body, **more) as call:
        await call.rest()
    return call


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


# ---- capture off


async def test_off_the_prefix_is_removed_and_nothing_else_happens(tmp_path: Path) -> None:
    model = ScriptedModel([], status=307, headers=[(b"location", b"/v1/x")])
    middleware = off(model)
    call = await ask(middleware)
    assert [(CHAT, CHAT.encode())] == [(scope["path"], scope["raw_path"]) for scope in model.scopes]
    assert [(b"location", b"/v1/x")] == call.received[0]["headers"]
    assert ([], {}) == (files(tmp_path), dict(middleware.unattributed.counts))


async def test_off_the_prefix_is_removed_once_however_many_are_in_the_chain() -> None:
    model = ScriptedModel.of(HI)
    await ask(off(off(off(model))), "/ng-rollout/a/ng-rollout/b/x")
    assert ["/ng-rollout/b/x"] == [scope["path"] for scope in model.scopes]


async def test_one_that_is_off_does_not_hide_the_rollout_from_one_that_is_on(tmp_path: Path) -> None:
    model = ScriptedModel.of(HI)
    await ask(off(on(off(on(model, tmp_path)), tmp_path)))
    assert (1, [CHAT]) == (len(CaptureStore(tmp_path).read("0-0")), [scope["path"] for scope in model.scopes])


# ---- what the application sees


async def test_the_callers_scope_is_left_as_it_is(tmp_path: Path) -> None:
    model = ScriptedModel.of(HI)
    extensions: dict[str, Any] = {"http.response.pathsend": {}, "http.response.trailers": {}}
    call = Exchange(on(model, tmp_path), CALL, scope={"extensions": extensions})
    before = {**call.scope, "headers": list(call.scope["headers"]), "extensions": dict(extensions)}
    async with call:
        await call.rest()
    assert before == call.scope
    assert {"http.response.trailers": {}} == model.scopes[0]["extensions"]


async def test_extensions_that_send_files_are_kept_where_nothing_is_captured(tmp_path: Path) -> None:
    model = ScriptedModel.of(HI)
    extensions: dict[str, Any] = {"http.response.pathsend": {}, "http.response.zerocopysend": {}}
    await ask(on(model, tmp_path), "/ng-rollout/0-0/v1/files/x", scope={"extensions": extensions})
    assert extensions == model.scopes[0]["extensions"]


@pytest.mark.parametrize("missing", ["headers", "client", "raw_path", "root_path", "query_string", "state"])
async def test_a_scope_may_lack_what_is_optional(tmp_path: Path, missing: str) -> None:
    model = ScriptedModel.of(HI)
    call = Exchange(on(model, tmp_path), CALL)
    call.scope.pop(missing, None)
    async with call:
        await call.rest()
    assert (HI, CHAT) == (CaptureStore(tmp_path).read("0-0")[0]["response"], model.scopes[0]["path"])
    assert (missing in model.scopes[0]) == (missing == "state")


async def test_a_raw_path_that_the_server_does_not_know_stays_unknown(tmp_path: Path) -> None:
    model = ScriptedModel.of(HI)
    await ask(on(model, tmp_path), scope={"raw_path": None})
    assert CHAT == model.scopes[0]["path"]
    assert model.scopes[0]["raw_path"] in (None, CHAT.encode())


@pytest.mark.parametrize(
    ("path", "root_path", "seen"),
    [
        (f"/proxy{CALL}", "/proxy", f"/proxy{CHAT}"),
        (f"/proxy{CALL}", "/proxy/", f"/proxy{CHAT}"),
        (CALL, "/proxy", CHAT),
    ],
)
async def test_a_call_behind_a_proxy_path_is_captured(tmp_path: Path, path: str, root_path: str, seen: str) -> None:
    model = ScriptedModel.of(HI)
    await ask(on(model, tmp_path), path, scope={"root_path": root_path})
    assert ([seen], 1) == ([scope["path"] for scope in model.scopes], len(CaptureStore(tmp_path).read("0-0")))


async def test_a_server_may_say_that_it_has_no_proxy_path(tmp_path: Path) -> None:
    model = ScriptedModel.of(HI)
    app = on(model, tmp_path)
    for path in (CALL, CHAT, "/health", "/ng-rollout/0-0/health"):
        await ask(app, path, scope={"root_path": None})
    assert [CHAT, CHAT, "/health", "/health"] == [scope["path"] for scope in model.scopes]
    assert (1, 1) == (len(CaptureStore(tmp_path).read("0-0")), app.unattributed.counts["no_prefix"])


async def test_a_proxy_path_that_is_not_the_servers_hides_the_prefix(tmp_path: Path) -> None:
    model = ScriptedModel.of(HI)
    await ask(on(model, tmp_path), f"/other{CALL}", scope={"root_path": "/proxy"})
    assert ([f"/other{CALL}"], []) == ([scope["path"] for scope in model.scopes], files(tmp_path))


@pytest.mark.parametrize("path", [CALL, "/ng-rollout/0-0/v1/models"])
async def test_the_current_rollout_is_the_one_of_the_path_while_the_application_runs(tmp_path: Path, path: str) -> None:
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(current_rollout_id())
        seen.append(await asyncio.ensure_future(elsewhere()))
        await ScriptedModel.of(HI)(scope, receive, send)

    async def elsewhere() -> str | None:
        return current_rollout_id()

    middleware = on(app, tmp_path)
    call = Exchange(middleware, path)

    async def serve() -> None:
        await middleware(call.scope, call._receive, call._send)
        seen.append(current_rollout_id())

    await serve()
    assert ["0-0", "0-0", None] == seen


async def test_the_current_rollout_shows_whatever_the_path_had(tmp_path: Path) -> None:
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(current_rollout_id())
        await ScriptedModel.of(HI)(scope, receive, send)

    await ask(on(app, tmp_path), f"/ng-rollout/..{CHAT}")
    await ask(on(app, tmp_path), CHAT)
    assert ["..", None] == seen


# ---- which calls


@pytest.mark.parametrize(
    ("method", "path", "captured"),
    [
        ("POST", CALL, True),
        ("post", CALL, True),
        ("POST", f"{CALL}?beta=true", True),
        ("POST", "/ng-rollout/0-0/v1/chat%2Fcompletions", True),
        ("POST", f"{CALL}/", False),
        ("POST", f"{CALL}/x", False),
        ("POST", "/ng-rollout/0-0/v1/messages/count_tokens", False),
        ("POST", "/ng-rollout/0-0//v1/messages", False),
        ("POST", "/ng-rollout/0-0/V1/messages", False),
        ("GET", CALL, False),
        ("HEAD", CALL, False),
        ("OPTIONS", CALL, False),
    ],
)
async def test_only_posts_to_a_model_route_are_captured(
    tmp_path: Path, method: str, path: str, captured: bool, caplog: pytest.LogCaptureFixture
) -> None:
    middleware = on(ScriptedModel.of(HI), tmp_path)
    await ask(middleware, path, method=method)
    assert (["0-0.capture.jsonl"] if captured else []) == files(tmp_path)
    assert ({}, []) == (dict(middleware.unattributed.counts), caplog.messages)


@pytest.mark.parametrize(
    ("path", "root_path", "counts"),
    [
        (CHAT, "", {"no_prefix": 1}),
        (f"/proxy{CHAT}", "/proxy", {"no_prefix": 1}),
        (f"/proxy{CHAT}", "", {}),
        ("/v1/models", "", {}),
        (f"/ng-rollout/..{CHAT}", "", {"bad_id": 1}),
        (f"/ng-rollout/{'a' * 242}{CHAT}", "", {"bad_id": 1}),
        (f"/ng-rollout/{'a' * 241}{CHAT}", "", {}),
        ("/ng-rollout/../v1/models", "", {}),
        (f"/ng-rollout/0-0/proxy{CHAT}", "/proxy", {"before_root": 1}),
        (f"/ng-rollout/0-0/proxy{CHAT}", "", {}),
        (f"/ng-rollout/0-0/proxy{CHAT}", "/other", {}),
        (f"/ng-rollout/0-0/proxies{CHAT}", "/proxy", {}),
        (f"/proxy/ng-rollout/0-0/proxy{CHAT}", "/proxy", {}),
        ("/ng-rollout/0-0/proxy/v1/models", "/proxy", {}),
    ],
)
async def test_a_model_call_that_belongs_to_no_rollout_is_counted(
    tmp_path: Path, path: str, root_path: str, counts: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel.of(HI)
    middleware = on(model, tmp_path)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            await ask(middleware, path, scope={"root_path": root_path})
    assert {reason: 2 * count for reason, count in counts.items()} == dict(middleware.unattributed.counts)
    assert (len(counts), 2) == (len(caplog.messages), len(model.bodies))


IDS = st.one_of(
    st.text(min_size=1, max_size=40),
    st.text("./\\-_a0%~\x00\n ", min_size=1, max_size=12),
    st.text("a.-_", min_size=230, max_size=260),
    st.sampled_from(["..", ".", "...", "~", "-rf", "CON", "a\n", "a/../b", "%2e%2e", "a%00", "é", "\udc80", "a" * 241]),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(IDS, st.sampled_from([CHAT, "/v1/responses", "/training-token-capture/v1/messages"]))
async def test_no_id_writes_anything_but_a_capture_file_of_a_valid_id(
    tmp_path_factory: pytest.TempPathFactory, rollout_id: str, rest: str
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    directory = outside / "inside" / "captures"
    call = Exchange(on(ScriptedModel.of(HI), directory), "/x")
    call.scope.update(path=f"/ng-rollout/{rollout_id}{rest}", raw_path=b"/x")
    async with call:
        await call.rest()
    written = [path for path in outside.rglob("*") if path.is_file()]
    assert json.dumps(HI).encode() == call.body
    assert [directory] * len(written) == [path.parent for path in written]
    names = [path.name.removesuffix(".capture.jsonl") for path in written]
    first = rollout_id.partition("/")[0]
    assert ([first] if is_rollout_id(first) and "/" not in rollout_id else names) == names
    assert all(is_rollout_id(name) for name in names)


# ---- other sources of the id


@pytest.mark.parametrize(
    ("configured", "path", "headers", "ids"),
    [
        ({}, CHAT, [(b"x-rollout", b"h"), (b"baggage", b"ng.rollout.id=b")], []),
        ({"rollout_id_header": "X-Rollout"}, CHAT, [(b"x-rollout", b"h")], ["h"]),
        ({"rollout_id_header": "X-Rollout"}, CHAT, [(b"x-rollout", b"../h")], []),
        ({"rollout_id_header": "X-Rollout"}, CALL, [(b"x-rollout", b"h")], ["0-0"]),
        ({"rollout_id_header": "X-Rollout"}, f"/ng-rollout/..{CHAT}", [(b"x-rollout", b"h")], []),
        ({"rollout_id_baggage": True}, CHAT, [(b"baggage", b"ng.rollout.id=b")], ["b"]),
        ({"rollout_id_baggage": True, "rollout_id_header": "x-r"}, CHAT, [(b"baggage", b"ng.rollout.id=b")], ["b"]),
        ({"rollout_id_header": "x-r"}, "/v1/models", [(b"x-r", b"h")], []),
    ],
)
async def test_header_and_baggage_name_the_rollout_where_settings_say_so_and_the_path_does_not(
    tmp_path: Path, configured: dict[str, Any], path: str, headers: list[tuple[bytes, bytes]], ids: list[str]
) -> None:
    model = ScriptedModel.of(HI)
    await ask(on(model, tmp_path, **configured), path, headers=headers)
    assert ids == list(CaptureStore(tmp_path).rollout_ids())
    assert (headers, CHAT if path != "/v1/models" else path) == (model.scopes[0]["headers"], model.scopes[0]["path"])


# ---- lifespan


class Lifespan:
    """A server's side of the lifespan protocol."""

    def __init__(self, **scope: Any) -> None:
        self.scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}, **scope}
        self.events = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
        self.told: list[Any] = []

    async def receive(self) -> Any:
        return self.events.pop(0)

    async def send(self, message: Any) -> None:
        self.told.append(message)


@pytest.mark.parametrize("captured", [True, False])
async def test_lifespan_passes_with_its_state(tmp_path: Path, captured: bool) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert "lifespan.startup" == (await receive())["type"]
        scope["state"]["pool"] = 1
        await send({"type": "lifespan.startup.complete"})
        assert "lifespan.shutdown" == (await receive())["type"]
        await send({"type": "lifespan.shutdown.complete"})

    server = Lifespan()
    await (on(app, tmp_path) if captured else off(app))(server.scope, server.receive, server.send)
    assert {"pool": 1} == server.scope["state"]
    assert ["lifespan.startup.complete", "lifespan.shutdown.complete"] == [told["type"] for told in server.told]


async def test_an_application_that_fails_to_start_fails_as_without_capture(tmp_path: Path) -> None:
    failed = {"type": "lifespan.startup.failed", "message": "no weights"}

    async def says_so(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(failed)

    async def raises(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("no lifespan here")

    server = Lifespan()
    await on(says_so, tmp_path)(server.scope, server.receive, server.send)
    assert [failed] == server.told
    with pytest.raises(RuntimeError, match="no lifespan here"):
        await on(raises, tmp_path)(server.scope, server.receive, server.send)


async def test_shutdown_is_complete_when_the_record_of_a_call_that_runs_on_is_durable(tmp_path: Path) -> None:
    """The client has left and the application was cancelled; its record is on disk before the server may end."""
    server = Lifespan()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await ScriptedModel([*stream("chat", "par")[:2], asyncio.Event()])(scope, receive, send)

    middleware = on(app, tmp_path)
    async with Exchange(middleware, CALL) as call:
        await call.message()
        await call.message()
        call.task.cancel()
        await asyncio.sleep(0)
        call.task.cancel()
        await middleware(server.scope, server.receive, server.send)
        assert "lifespan.shutdown.complete" == server.told[-1]["type"]
        assert ["cancelled"] == [record["error_category"] for record in CaptureStore(tmp_path).read("0-0")]


@pytest.mark.parametrize("fault", ["busy", "shut down"])
async def test_the_applications_executor_is_its_own_affair(tmp_path: Path, fault: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for phase in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{phase}.complete"})

    executor = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(executor)
    over = threading.Event()
    if fault == "busy":
        executor.submit(over.wait)
    else:
        executor.shutdown()
    server = Lifespan()
    middleware = on(app, tmp_path)
    try:
        await asyncio.wait_for(middleware(server.scope, server.receive, server.send), 30)
        await asyncio.wait_for(middleware.aclose(), 30)
    finally:
        over.set()
    assert ["lifespan.startup.complete", "lifespan.shutdown.complete"] == [told["type"] for told in server.told]


async def test_a_fault_of_ours_fails_neither_the_start_nor_the_end_of_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for phase in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{phase}.complete"})

    def fail(*_: Any) -> bool:
        raise ZeroDivisionError

    middleware = on(app, tmp_path)
    monkeypatch.setattr(provider, "has_destination", fail)
    monkeypatch.setattr(Writer, "drain", fail)
    server = Lifespan()
    await middleware(server.scope, server.receive, server.send)
    assert ["lifespan.startup.complete", "lifespan.shutdown.complete"] == [told["type"] for told in server.told]
    assert 2 == len([entry for entry in caplog.records if entry.levelno == logging.ERROR])


# ---- made in a call


class LazyApplication:
    """Makes its middleware in the first call, as Starlette does."""

    def __init__(self, configured: Settings) -> None:
        self.configured = configured
        self.stack: Any = None

    def build_middleware_stack(self) -> Any:
        return CaptureMiddleware(ScriptedModel.of(HI), self.configured)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.stack = self.stack or self.build_middleware_stack()
        await self.stack(scope, receive, send)


@pytest.fixture
def unusable(tmp_path: Path) -> Settings:
    (tmp_path / "file").touch()
    return Settings(observability_enabled=True, model_call_capture_dir=tmp_path / "file")


async def test_a_directory_that_cannot_be_used_fails_at_once(unusable: Settings) -> None:
    with pytest.raises(SettingsError, match="MODEL_CALL_CAPTURE_DIR"):
        CaptureMiddleware(ScriptedModel.of(HI), unusable)


async def test_made_in_the_lifespan_call_it_fails_the_start_of_the_server(unusable: Settings) -> None:
    server = Lifespan()
    with pytest.raises(SettingsError):
        await LazyApplication(unusable)(server.scope, server.receive, server.send)
    [told] = server.told
    assert "lifespan.startup.failed" == told["type"]
    assert "MODEL_CALL_CAPTURE_DIR" in told["message"]


async def test_made_in_the_call_of_a_request_every_request_says_why(unusable: Settings) -> None:
    app = LazyApplication(unusable)
    for _ in range(2):
        with pytest.raises(SettingsError, match="MODEL_CALL_CAPTURE_DIR"):
            await ask(app)


# ---- the end


async def test_a_closed_middleware_starts_anew(tmp_path: Path) -> None:
    middleware = on(ScriptedModel.of(HI), tmp_path)
    for _ in range(2):
        await ask(middleware)
        await middleware.aclose()
    await off(ScriptedModel.of(HI)).aclose()
    assert 2 == len(CaptureStore(tmp_path).read("0-0"))


async def test_an_error_of_the_application_is_its_own(tmp_path: Path) -> None:
    class Odd(BaseException):
        pass

    for error in (RuntimeError("x"), Odd(), KeyboardInterrupt(), SystemExit(3)):
        call = Exchange(on(ScriptedModel([error], headers=JSON), tmp_path), CALL)
        with contextlib.suppress(BaseException):
            await call._app(call.scope, call._receive, call._send)
            pytest.fail("raised nothing")
    assert [("exception", 200)] * 4 == [
        (record["error_category"], record["status_code"]) for record in CaptureStore(tmp_path).read("0-0")
    ]


def test_under_trio_calls_pass_uncaptured_and_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sent: list[Any] = []

    async def model(scope: Any, receive: Any, send: Any) -> None:
        await trio.lowlevel.checkpoint()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nobody asks")

    middleware = on(model, tmp_path)
    scope = {"type": "http", "method": "POST", "path": CALL, "headers": []}
    for _ in range(2):
        trio.run(middleware, scope, receive, send)
    assert (4, [], {"no_asyncio": 2}) == (len(sent), files(tmp_path), dict(middleware.unattributed.counts))
    assert 1 == len([record for record in caplog.records if "asyncio worker" in record.getMessage()])
