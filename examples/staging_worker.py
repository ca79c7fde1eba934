"""An inference worker that stages the exact tokens of each call. Behind a gateway that admits them:

STAGING_DIRECTORY=$PWD/staged uvicorn examples.staging_worker:app
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException

from examples.scripted_worker.generation import answer
from examples.scripted_worker.sink import ControlledSink
from otel_gym.staging import CaptureAdmission, RolloutTokenCapture, StagedCalls, VLLMCaptureAdapter

app = FastAPI(title="A worker that stages tokens")
sink = ControlledSink(Path(os.environ["STAGING_DIRECTORY"]))
staged = StagedCalls(sink.directory)
capture = RolloutTokenCapture(sink, lambda: 7, VLLMCaptureAdapter())


@app.post("/v1/chat/completions")
def call(body: dict[str, Any]) -> dict[str, Any]:
    """Answer one call as a whole; its tokens go to the sink, their coordinates into the answer."""
    if body.get("stream"):
        raise HTTPException(400, "a worker that stages tokens answers as a whole")
    admission = CaptureAdmission.model_validate(body.pop("ng_capture"))
    prefix = admission.required_prefix_token_ids or staged.token_ids(admission.staging_chain)
    active = capture.begin_call(admission, prefix)
    made = answer(body, prefix)
    return {**made, "ng_commit_coords": capture.complete_call_from_response(active, made).model_dump(mode="json")}


@app.post("/sink")
def tell(orders: dict[str, Any]) -> None:
    """Tell the sink what to do from now on: fail_every, stall_s, kill."""
    sink.orders = orders
