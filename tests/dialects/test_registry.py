"""A dialect is one module and one line of the registry."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from otel_gym import CaptureMiddleware, Settings
from otel_gym.dialects import DIALECTS, Assembly, Terminal
from otel_gym.sse import Event
from otel_gym.testing import Exchange, ScriptedModel
from otel_gym_jsonl import CaptureStore


class Completions:
    """A fourth one: what its module would hold."""

    name = "completions"
    path = "/v1/completions"
    provider = "somebody"
    needles: tuple[bytes, ...] = (b"over",)

    def terminal(self, event: Event) -> Terminal | None:
        return "complete" if event.data == b"over" else None

    def assemble(self, events: Iterable[Event]) -> Assembly:
        texts: list[str] = []
        for event in events:
            if self.terminal(event):
                return Assembly({"text": "".join(texts)}, "complete")
            texts.append(event.data.decode())
        return Assembly({"text": "".join(texts)})

    def request_facts(self, request: dict[str, Any]) -> dict[str, Any]:
        return {}

    def response_facts(self, response: dict[str, Any]) -> dict[str, Any]:
        return {}

    def content(self, request: dict[str, Any] | None, response: dict[str, Any] | None) -> dict[str, Any]:
        return {}


async def test_a_fourth_dialect_is_captured_by_its_line_in_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DIALECTS, Completions.path, Completions())
    model = ScriptedModel(
        [b"data: a\n\n", b"data: b\n\n", b"data: over\n\n"], headers=[(b"content-type", b"text/event-stream")]
    )
    middleware = CaptureMiddleware(model, Settings(observability_enabled=True, model_call_capture_dir=tmp_path))
    async with Exchange(middleware, "/ng-rollout/0-0/v1/completions", b"{}") as call:
        await call.rest()
    [record] = CaptureStore(tmp_path).read("0-0")
    assert ("completions", {"text": "ab"}, None) == (record["dialect"], record["response"], record["error_category"])
