"""Calls of every kind in a process of its own: `python -m tests.hostile_environment <directory> [global provider]`.

What is in the environment is the test's business; with the second argument the application has a global provider, too,
that samples nothing and keeps next to nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from otel_gym import CaptureMiddleware, Settings
from otel_gym.testing import JSON, Application, DialectName, Exchange, ScriptedModel, answer, stream

PATHS: dict[DialectName, str] = {
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
}
HEADERS = (*JSON, (b"x-session-id", b"s1"), (b"traceparent", b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-00"))
LONG = "a question that is longer than any limit " * 20
OUTCOME = {
    "upstream_attempted": True,
    "response_source": "upstream",
    "upstream_status_code": 200,
    "local_response_reason": None,
}


def with_outcome(inner: Application) -> Application:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["state"]["nemo_gym_model_execution"] = OUTCOME
        with trace.get_tracer("users").start_as_current_span("the user's own span"):
            token = context.attach(baggage.set_baggage("user", "1"))
            await inner(scope, receive, send)
            context.detach(token)

    return app


async def serve(directory: Path) -> None:
    settings = Settings(observability_enabled=True, model_call_capture_dir=directory, model_server_name="policy")
    for dialect, path in PATHS.items():
        body = json.dumps({"model": "m", "input": LONG, "messages": [{"role": "user", "content": LONG}] * 150}).encode()
        for model in (
            ScriptedModel.of(answer(dialect, LONG)),
            ScriptedModel(stream(dialect, *LONG.split(" "))),
            ScriptedModel.of({"error": {"message": LONG}}, status=429),
            ScriptedModel([b"no JSON: " + LONG.encode()], headers=JSON),
        ):
            for request in (body, b"no JSON"):
                app = CaptureMiddleware(with_outcome(model), settings)
                async with Exchange(app, f"/ng-rollout/{dialect}{path}", request, headers=HEADERS) as call:
                    await call.rest()


def main(directory: Path, *, global_provider: bool) -> None:
    if global_provider:
        limits = SpanLimits(max_attributes=1, max_attribute_length=3)
        trace.set_tracer_provider(TracerProvider(sampler=ALWAYS_OFF, span_limits=limits))
    asyncio.run(serve(directory))


if __name__ == "__main__":
    main(Path(sys.argv[1]), global_provider=len(sys.argv) > 2)
