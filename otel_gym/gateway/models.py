"""Which model a request is for, where several upstreams share a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from otel_gym.content_encoding import Decoder
from otel_gym_jsonl import json_text

_INLINE_BYTES = 16 * 1024  # what is larger is read off the event loop


async def model_of(body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The `model` of a request's JSON object; None when there is none.

    Args:
        body: as it came.
        headers: of the request; a compressed body is decoded for the look.
    """
    encoding = next((value.decode("latin-1") for name, value in headers if name == b"content-encoding"), "")
    if not encoding and len(body) <= _INLINE_BYTES:
        return _read(body, "")
    return await asyncio.get_running_loop().run_in_executor(None, _read, body, encoding)


def _read(body: bytes, encoding: str) -> str | None:
    if encoding:
        body = b"".join(Decoder(encoding).feed(body))
    try:
        request = json_text.loads(body)
    except ValueError:
        return None
    model = request.get("model") if isinstance(request, dict) else None
    return model if isinstance(model, str) else None
