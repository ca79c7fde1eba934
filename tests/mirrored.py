"""A capture whose spans go to a receiver in the test's own process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_gym import CaptureMiddleware, Settings
from otel_gym.testing import JSON, Application, Exchange, Headers, ScriptedModel, answer
from otel_gym.trace_ids import rollout_trace
from otel_gym_jsonl import CaptureStore
from tests.services.receiver import Receiver, plain

PATHS = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages"}
RUN = "tonight"
FOREIGN = "00-" + "ab" * 16 + "-" + "cd" * 8


class Mirrored:
    """One capture directory, one receiver.

    Args:
        directory: for the captures.
        receiver: where spans go; None: where the process and the standard variables say.
        settings: further ones.
    """

    def __init__(self, directory: Path, receiver: Receiver | None = None, **settings: Any) -> None:
        self.store = CaptureStore(directory)
        self.receiver = receiver
        self._apps: list[CaptureMiddleware] = []
        entry = None if receiver is None else [{"endpoint": receiver.endpoint}]
        self.settings = Settings(
            observability_enabled=True,
            model_call_capture_dir=directory,
            **{"run_id": RUN, "mirror_destinations": entry, **settings},
        )

    def app(self, inner: Application) -> CaptureMiddleware:
        app = CaptureMiddleware(inner, settings=self.settings)
        self._apps.append(app)
        return app

    def close(self) -> None:
        """Leave no thread behind that goes on asking for a receiver that is not there."""
        for app in self._apps:
            if app._pipeline is not None and app._pipeline._mirroring is not None:
                app._pipeline._mirroring.mirror.close(0)

    async def call(
        self,
        inner: Application | None = None,
        rollout_id: str = "0-0",
        dialect: str = "chat",
        *,
        headers: Headers = (),
        body: bytes | Sequence[bytes] = b'{"model":"m"}',
        **more: Any,
    ) -> Exchange:
        """A call to its end, by default of a model that says hi."""
        model = ScriptedModel.of(answer(dialect, "hi")) if inner is None else inner  # type: ignore[arg-type]
        path = f"/ng-rollout/{rollout_id}{PATHS[dialect]}"
        all_headers = ((b"host", b"model.test:8000"), *JSON, *headers)
        async with Exchange(self.app(model), path, body, headers=all_headers, **more) as call:
            await call.rest()
        return call

    def spans(self, count: int) -> list[Span]:
        """The spans that the receiver has, as soon as there are so many."""
        assert self.receiver is not None
        return self.receiver.wait_for(count)

    def span(self) -> Span:
        (span,) = self.spans(1)
        return span

    def record(self, rollout_id: str = "0-0") -> dict[str, Any]:
        (record,) = self.store.read(rollout_id)
        return record

    def trace_id(self, rollout_id: str = "0-0") -> str:
        return f"{rollout_trace(RUN, rollout_id).trace_id:032x}"

    def root_span_id(self, rollout_id: str = "0-0") -> str:
        return f"{rollout_trace(RUN, rollout_id).root_span_id:016x}"


def attributes(span: Span) -> dict[str, Any]:
    return plain(span.attributes)


def header(scope: Any, name: bytes) -> list[str]:
    """The values of a header as an application got it."""
    return [value.decode() for key, value in scope["headers"] if key == name]
