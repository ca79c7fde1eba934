"""What the corpus does not say of the token sink: capture off, a chain of middlewares, sinks that fail."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from otel_gym import CaptureMiddleware, Settings, current_rollout_id, token_sink
from otel_gym.testing import JSON, Exchange, ScriptedModel

UNSTAGED = "/ng-rollout/5-0/training-token-capture/v1/completions"


class NotingSink:
    def __init__(self) -> None:
        self.marks: list[tuple[str, str]] = []

    async def mark_incomplete(self, rollout_id: str, call_id: str) -> None:
        await asyncio.sleep(0)
        self.marks.append((rollout_id, call_id))


class RaisingSink:
    async def mark_incomplete(self, rollout_id: str, call_id: str) -> None:
        raise RuntimeError("no such queue")


class HangingSink:
    async def mark_incomplete(self, rollout_id: str, call_id: str) -> None:
        await asyncio.Event().wait()


def settings(directory: Path | None) -> Settings:
    return Settings(observability_enabled=directory is not None, model_call_capture_dir=directory)


async def ask(app: Any, path: str = UNSTAGED) -> list[Any]:
    async with Exchange(app, path, b"{}") as call:
        await call.rest()
    return call.received


async def test_capture_need_not_be_on() -> None:
    sink = NotingSink()
    model = ScriptedModel.of({})
    await ask(CaptureMiddleware(model, settings(None), token_sink=sink))
    assert [("5-0", "")] == sink.marks
    assert ["/v1/completions"] == [scope["path"] for scope in model.scopes]


@pytest.mark.parametrize("outer_on", [True, False])
@pytest.mark.parametrize("inner_on", [True, False])
async def test_a_middleware_further_out_hides_no_call(outer_on: bool, inner_on: bool, tmp_path: Path) -> None:
    sink = NotingSink()
    inner = CaptureMiddleware(ScriptedModel.of({}), settings(tmp_path if inner_on else None), token_sink=sink)
    await ask(CaptureMiddleware(inner, settings(tmp_path if outer_on else None)))
    assert [("5-0", "")] == sink.marks


@pytest.mark.parametrize(
    ("path", "marks"),
    [
        ("/ng-rollout/5-0/training-token-capture/v1/chat/completions", []),
        ("/ng-rollout/5-0/training-token-capture/v1/responses/compact", [("5-0", "")]),
        ("/ng-rollout/5-0/v1/completions", []),
        ("/ng-rollout/training-token-capture/v1/completions", []),
        ("/ng-rollout/training-token-capture/training-token-capture/v1/x", [("training-token-capture", "")]),
        ("/ng-rollout/-odd-id/training-token-capture/v1/completions", []),
        ("/v1/completions", []),
    ],
)
async def test_which_paths_are_marked(path: str, marks: list[tuple[str, str]]) -> None:
    sink = NotingSink()
    await ask(CaptureMiddleware(ScriptedModel.of({}), settings(None), token_sink=sink), path)
    assert marks == sink.marks


async def test_the_application_sees_no_rollout_and_the_caller_sees_its_own_again() -> None:
    seen: list[str | None] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(current_rollout_id())
        await send({"type": "http.response.start", "status": 200, "headers": list(JSON)})
        await send({"type": "http.response.body", "body": b"{}"})

    await ask(CaptureMiddleware(app, settings(None), token_sink=NotingSink()))
    assert [None] == seen
    assert current_rollout_id() is None


async def test_a_sink_that_raises_is_logged_and_changes_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    received = await ask(CaptureMiddleware(ScriptedModel.of({}), settings(None), token_sink=RaisingSink()))
    assert 200 == received[0]["status"]
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert ["otel-gym: the token sink could not mark rollout '5-0' incomplete"] == [r.getMessage() for r in logged]


async def test_a_sink_that_hangs_is_left_alone_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_sink, "MARK_SECONDS", 0.01)
    received = await ask(CaptureMiddleware(ScriptedModel.of({}), settings(None), token_sink=HangingSink()))
    assert 200 == received[0]["status"]
    for task in list(token_sink._unfinished):
        task.cancel()


async def test_a_request_that_is_cancelled_twice_is_marked_all_the_same() -> None:
    gate = asyncio.Event()

    class SlowSink(NotingSink):
        async def mark_incomplete(self, rollout_id: str, call_id: str) -> None:
            await gate.wait()
            await super().mark_incomplete(rollout_id, call_id)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    sink = SlowSink()
    middleware = CaptureMiddleware(app, settings(None), token_sink=sink)
    scope = {"type": "http", "method": "POST", "path": UNSTAGED, "headers": []}
    task = asyncio.create_task(middleware(scope, None, None))  # type: ignore[arg-type]  # nobody receives or sends
    for _ in range(2):
        await asyncio.sleep(0.01)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    await asyncio.gather(*token_sink._unfinished)
    assert [("5-0", "")] == sink.marks


async def test_a_request_that_is_closed_from_outside_is_marked() -> None:
    class Pause:
        def __await__(self) -> Any:
            yield

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await Pause()

    sink = NotingSink()
    scope = {"type": "http", "method": "POST", "path": UNSTAGED, "headers": []}
    coroutine = CaptureMiddleware(app, settings(None), token_sink=sink)(scope, None, None)  # type: ignore[arg-type]
    coroutine.send(None)
    coroutine.close()
    await asyncio.gather(*token_sink._unfinished)
    assert [("5-0", "")] == sink.marks
