"""A capture under test: a middleware with a directory of its own, and what lies in that directory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from otel_gym import CaptureMiddleware, Settings
from otel_gym.testing import Application, Exchange, Headers, ScriptedModel, sse
from otel_gym_jsonl import CaptureStore, aggregate_model_call_metrics, read_model_call_records

PATHS = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages"}
WIRE_BODIES = Path(__file__).with_name("wire_bodies.jsonl")


def wire(number: int) -> tuple[str, list[bytes]]:
    """Dialect and body messages of an input of the page."""
    for line in WIRE_BODIES.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry["n"] == number:
            return entry["d"], [piece.encode() for piece in entry["c"]]
    raise LookupError(number)


def chunk(choice: dict[str, Any], **top: Any) -> bytes:
    """A chat chunk with one choice, as an event."""
    return (
        b"data: "
        + json.dumps({"id": "c1", "model": "m", "choices": [{"index": 0, **choice}], **top}).encode()
        + b"\n\n"
    )


def delta(**fields: Any) -> bytes:
    return chunk({"delta": fields})


def finish(reason: str) -> bytes:
    return chunk({"delta": {}, "finish_reason": reason})


DONE = sse("[DONE]")


class Capture:
    """One capture directory and the calls that go there."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self.settings = Settings(observability_enabled=True, model_call_capture_dir=directory, **settings)
        self.store = CaptureStore(directory)

    async def nobody(self, scope: Any, receive: Any, send: Any) -> None:
        """An application that is never called."""
        raise AssertionError(scope)

    def app(self, inner: Application) -> CaptureMiddleware:
        return CaptureMiddleware(inner, settings=self.settings)

    def call(
        self, inner: Application, dialect: str = "chat", *, body: bytes | Sequence[bytes] | None = None, **more: Any
    ) -> Exchange:
        """A call of rollout 0-0; an exchange to enter."""
        request = b'{"model":"m","stream":true}' if body is None else body
        return Exchange(self.app(inner), f"/ng-rollout/0-0{PATHS[dialect]}", request, **more)

    async def play(self, pieces: Sequence[bytes], dialect: str = "chat", headers: Headers | None = None) -> Any:
        """Play one stream; the client gets the same bytes in the same messages, the store one record."""
        model = ScriptedModel(pieces) if headers is None else ScriptedModel(pieces, headers=headers)
        async with self.call(model, dialect) as call:
            messages = await call.rest()
        assert [*pieces, b""] == [message["body"] for message in messages[1:]]
        return self.record()

    def records(self) -> list[dict[str, Any]]:
        return self.store.read("0-0")

    def record(self) -> dict[str, Any]:
        """The one record there is, of a rollout without a marker."""
        [record] = self.records()
        assert ["0-0.capture.jsonl"] == self.files()
        return record

    def files(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())

    def metrics(self) -> dict[str, Any]:
        return dict(aggregate_model_call_metrics(self.store, "0-0"))

    def model_call(self) -> dict[str, Any]:
        [call] = read_model_call_records(self.store, "0-0")
        return call.model_dump()


def message(record: dict[str, Any]) -> dict[str, Any]:
    """The message of the first choice of a chat record."""
    found: dict[str, Any] = record["response"]["choices"][0]["message"]
    return found
