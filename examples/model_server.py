"""A FastAPI model server. The environment alone switches capture on:

OTEL_GYM_MODEL_CALL_CAPTURE_DIR=$PWD/model-calls uvicorn examples.model_server:app
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response, StreamingResponse

import otel_gym
from examples.scripted_model import chat, chat_stream, messages, messages_stream, responses, responses_stream
from examples.scripted_model.sse import sse

app = FastAPI(title="A scripted model")
otel_gym.instrument(app)


def serve(path: str, plain: Any, stream: Any) -> None:
    """Answer on one path, whole or as a stream."""

    @app.post(path)
    async def call(body: dict[str, Any]) -> Response:
        if body.get("stream"):
            return StreamingResponse(sse(stream.events(body)), media_type="text/event-stream")
        return JSONResponse(plain.answer(body))


serve("/v1/chat/completions", chat, chat_stream)
serve("/v1/messages", messages, messages_stream)
serve("/v1/responses", responses, responses_stream)
