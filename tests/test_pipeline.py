"""The pipeline: what a process keeps of it, and for how long."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from pathlib import Path

from otel_gym import CaptureMiddleware, Settings
from otel_gym.testing import Exchange, ScriptedModel, answer
from otel_gym_jsonl import CaptureStore


def test_threads_and_handles_go_when_nobody_needs_the_pipeline_any_more(tmp_path: Path) -> None:
    async def serve_once() -> None:
        model = ScriptedModel.of(answer("chat", "hi"))
        settings = Settings(observability_enabled=True, model_call_capture_dir=tmp_path)
        async with Exchange(CaptureMiddleware(model, settings), "/ng-rollout/0-0/v1/chat/completions", b"{}") as call:
            await call.rest()

    def ours() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("otel-gym")]

    before = len(ours())
    for _ in range(5):
        asyncio.run(serve_once())
        gc.collect()
    deadline = time.monotonic() + 10
    while len(ours()) > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(ours()) <= before
    assert 5 == len(CaptureStore(tmp_path).read("0-0"))


ENDS_AT_ONCE = """
import atexit, sys, threading, time
from otel_gym import Settings
from otel_gym.provider import pipeline_for

def refuse(thread):
    raise RuntimeError("can't create new thread at interpreter shutdown")

def slow_line(number):
    time.sleep(0.0005)
    return b"%d\\n" % number

pipeline = pipeline_for(Settings(observability_enabled=True, model_call_capture_dir=sys.argv[1]))
atexit.register(setattr, threading.Thread, "start", refuse)  # as some Pythons do (3.12.1)
for number in range(300):
    pipeline.writer.submit("a", lambda number=number: slow_line(number), lambda error: None)
"""


def test_a_process_that_ends_writes_what_it_has_accepted(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", ENDS_AT_ONCE, str(tmp_path)], check=True, timeout=60)
    assert ["a.capture.jsonl"] == [path.name for path in tmp_path.iterdir()]
    assert b"".join(b"%d\n" % number for number in range(300)) == (tmp_path / "a.capture.jsonl").read_bytes()
