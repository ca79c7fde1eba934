"""An application with the middleware added as vLLM's `--middleware` does it: Starlette makes it in its first call."""

from __future__ import annotations

from fastapi import FastAPI

from otel_gym import CaptureMiddleware

app = FastAPI()
app.add_middleware(CaptureMiddleware)
