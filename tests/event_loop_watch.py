"""Calls in a process of its own whose event loop is watched: `python -m tests.event_loop_watch <directory>`.

Prints each blocking thing that was done on that thread while calls were served: opening, locking, writing or syncing a
file, reading or writing the JSON of a body.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from otel_gym import CaptureMiddleware, Settings
from otel_gym.testing import DialectName, Exchange, ScriptedModel, answer, stream
from otel_gym_jsonl import json_text

PATHS: dict[DialectName, str] = {
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
}
BLOCKING: tuple[tuple[Any, str], ...] = (
    *((os, name) for name in ("open", "write", "pread", "fsync", "ftruncate", "stat", "close")),
    (fcntl, "flock"),
    (json_text, "loads"),
    (json_text, "dumps"),
)
found: list[str] = []


def watched(function: Callable[..., Any], name: str, loop_thread: int) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **more: Any) -> Any:
        if threading.get_ident() == loop_thread:
            found.append(name)
        return function(*args, **more)

    return call


async def serve(directory: Path) -> list[str]:
    settings = Settings(observability_enabled=True, model_call_capture_dir=directory, max_open_files=1)
    models = {
        dialect: (
            ScriptedModel.of(answer(dialect, "hi")),
            ScriptedModel(stream(dialect, "hi", "there" * 10_000)),
            ScriptedModel.of({"error": {"message": "slow down"}}, status=429),
        )
        for dialect in PATHS
    }
    captured = {dialect: [CaptureMiddleware(model, settings) for model in each] for dialect, each in models.items()}
    for module, name in BLOCKING:
        setattr(module, name, watched(getattr(module, name), f"{module.__name__}.{name}", threading.get_ident()))
    for dialect, apps in captured.items():
        for number, app in enumerate(apps):
            async with Exchange(app, f"/ng-rollout/{dialect}-{number}{PATHS[dialect]}", b'{"model": "m"}') as call:
                await call.rest()
        (directory / f"{dialect}-0.capture.jsonl").unlink()  # the next call finds the file gone
        async with Exchange(apps[0], f"/ng-rollout/{dialect}-0{PATHS[dialect]}", b'{"model": "m"}') as call:
            await call.rest()
    return list(found)  # before the applications are given up, whose files are closed wherever that happens


if __name__ == "__main__":
    print("\n".join(asyncio.run(serve(Path(sys.argv[1])))))
