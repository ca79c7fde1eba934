"""A model server that asks another one by the SDK of OpenAI; the capture stands in its code."""

from __future__ import annotations

import os
from typing import Any

from fastapi import FastAPI, Request
from openai import AsyncOpenAI

from otel_gym import CaptureMiddleware

app = FastAPI()
app.add_middleware(CaptureMiddleware)


@app.post("/v1/chat/completions")
async def chat(request: Request) -> dict[str, Any]:
    asked = await request.json()
    async with AsyncOpenAI(base_url=os.environ["UPSTREAM"], api_key="none", max_retries=0) as client:
        messages: Any = [{"role": "user", "content": asked["text"]}]
        answered = await client.chat.completions.create(model=asked["model"], messages=messages)
        return answered.to_dict()
