"""A worker in the test's own process: the example's, told by each test how to misbehave."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx

from examples.scripted_worker.generation import answer
from examples.scripted_worker.sink import ControlledSink
from otel_gym.staging import CaptureAdmission, RolloutTokenCapture, StagedCalls, VLLMCaptureAdapter


class Worker(httpx.AsyncBaseTransport):
    """A transport of httpx that is the worker.

    Attributes:
        asked: the body of each request.
        changed: replaces parts of the next answers; a callable gets the whole answer.
        status: of the answers.
        released: is waited for before an answer.
    """

    def __init__(self, directory: Path) -> None:
        self.sink = ControlledSink(directory)
        self.staged = StagedCalls(directory)
        self.capture = RolloutTokenCapture(self.sink, lambda: 7, VLLMCaptureAdapter())
        self.asked: list[dict[str, Any]] = []
        self.headers: list[httpx.Headers] = []
        self.changed: dict[str, Any] = {}
        self.raw: tuple[int, str, bytes] | None = None
        self.error: Exception | None = None
        self.released = asyncio.Event()
        self.released.set()
        self.cancelled = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(await request.aread())
        assert b"/v1/chat/completions" == request.extensions["target"]
        self.asked.append(json.loads(json.dumps(body)))
        self.headers.append(request.headers)
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        if self.raw is not None:
            status, media_type, content = self.raw
            return httpx.Response(status, headers={"content-type": media_type}, content=content)
        admission = CaptureAdmission.model_validate(body.pop("ng_capture"))
        prefix = self.staged.token_ids(admission.staging_chain)
        made = answer(body, prefix)
        coords = self.capture.complete_call_from_response(self.capture.begin_call(admission, prefix), made)
        return httpx.Response(200, json={**made, "ng_commit_coords": coords.model_dump(mode="json"), **self.changed})
