"""Where servers take their applications. That each does under its command is shown by `servers/test_zero_code.py`."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import uvicorn.config
from fastapi import FastAPI

from otel_gym import Settings, served, zero_code
from otel_gym.gateway import Upstream
from otel_gym.testing import Exchange, ScriptedModel, answer
from otel_gym_jsonl import CaptureStore
from tests.gateway.gateways import gateway
from tests.taken import taken

CHAT = "/v1/chat/completions"


@pytest.fixture(autouse=True)
def activated(tmp_path: Path) -> Iterator[None]:
    zero_code.activate(Settings(observability_enabled=True, model_call_capture_dir=tmp_path))
    yield
    zero_code.deactivate()


async def test_an_unattributed_call_behind_a_proxy_is_said_of_its_client(caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedModel.of(answer("chat", "hi"))
    config = uvicorn.Config(model, http="h11", ws="none", log_config=None, forwarded_allow_ips="*")
    config.load()
    headers = [(b"host", b"model.test"), (b"x-forwarded-for", b"192.0.2.7")]
    async with Exchange(config.loaded_app, CHAT, headers=headers) as call:
        await call.rest()
    assert [True] == ["192.0.2.7 calls" in message for message in caplog.messages]


def test_a_server_that_is_hooked_again_takes_its_application_once() -> None:
    zero_code.activate()
    load = uvicorn.Config.load
    zero_code.activate()
    assert load is uvicorn.Config.load
    served.HOOKS["uvicorn.config"](uvicorn.config)
    assert load is uvicorn.Config.load


@pytest.mark.parametrize("app", [functools.partial(print), len, ScriptedModel()])
def test_any_callable_is_taken(app: Any) -> None:
    assert app is not served.take(app)


async def test_the_gateway_captures_by_itself(tmp_path: Path) -> None:
    async with gateway(tmp_path / "gateway", Upstream("http://127.0.0.1:9")) as running:
        assert running.app is taken(running.app)


def test_a_server_without_what_is_hooked_is_served_as_it_is_and_that_is_said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A future one, say."""
    monkeypatch.setitem(sys.modules, "granian.asgi", types.ModuleType("granian.asgi"))
    zero_code.OtelGymInstrumentor().instrument()
    assert "nothing is captured" in caplog.text


async def test_the_root_path_of_the_application_counts(tmp_path: Path) -> None:
    app = FastAPI()
    app.root_path = "/proxy"  # as FastAPI(root_path=…) sets it, which is deprecated and warns
    app.add_api_route(CHAT, lambda: answer("chat", "hi"), methods=["POST"])
    server = taken(app)
    for rollout_path in ("/ng-rollout/a", "/proxy/ng-rollout/b", "/ng-rollout/c/proxy"):
        async with Exchange(server, rollout_path + CHAT) as call:
            await call.rest()
        assert 200 == call.received[0]["status"], rollout_path
    assert ["a", "b"] == sorted(CaptureStore(tmp_path).rollout_ids())
