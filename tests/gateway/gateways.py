"""Gateways for tests, in the test's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx

from otel_gym import Settings
from otel_gym.gateway import Gateway, Limits, Upstream, Upstreams, make_client
from otel_gym_jsonl import CaptureStore

PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}


class Running:
    """A gateway and what it records."""

    def __init__(self, gateway: Gateway, directory: Path) -> None:
        self.app = gateway
        self.store = CaptureStore(directory)

    def records(self, rollout_id: str = "0-0") -> list[dict[str, Any]]:
        return self.store.read(rollout_id)


@contextlib.asynccontextmanager
async def gateway(
    directory: Path,
    *upstreams: Upstream,
    client: httpx.AsyncClient | None = None,
    limits: Limits | None = None,
    default: str | None = "upstream",
    **more: Any,
) -> AsyncIterator[Running]:
    """A captured gateway, closed at the end."""
    settings = Settings(observability_enabled=True, model_call_capture_dir=directory)
    app = Gateway(client or make_client(limits), Upstreams(upstreams, default), settings, **more)
    try:
        yield Running(app, directory)
    finally:
        await app.aclose()


async def until(true: Callable[[], bool]) -> None:
    """Return as soon as it is true; AssertionError when it is not within 20 s."""
    for _ in range(2000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not become true")
