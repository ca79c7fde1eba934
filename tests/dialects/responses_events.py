"""Responses streams in small: their events, and what is made of them."""

from __future__ import annotations

import json
from typing import Any

from otel_gym.dialects.base import Assembly
from otel_gym.dialects.responses import Responses
from otel_gym.sse import events

RESPONSES = Responses()


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **fields}


def envelope(kind: str, **fields: Any) -> dict[str, Any]:
    return event(kind, response={"id": "r1", "status": kind, **fields})


def stream(*payloads: Any) -> bytes:
    return b"".join(b"event: %s\ndata: %s\n\n" % (p["type"].encode(), json.dumps(p).encode()) for p in payloads)


def assembled(*payloads: Any) -> Assembly:
    return RESPONSES.assemble(events(stream(*payloads)))


def output_of(*payloads: Any) -> Any:
    """What these events make of the output of a stream that broke off after them."""
    assembly = assembled(CREATED, *payloads)
    assert assembly.terminal is None
    assert assembly.response is not None
    return assembly.response["output"]


CREATED = envelope("created", output=[])
ERROR = {"type": "error", "code": "server_error", "message": "broke"}
MESSAGE = {"type": "message", "id": "m1", "role": "assistant", "status": "in_progress", "content": []}
CALL = {"type": "function_call", "id": "f1", "call_id": "c1", "name": "run", "arguments": ""}
REASONING = {"type": "reasoning", "id": "rs1", "summary": []}


def added(index: Any, item: Any) -> dict[str, Any]:
    return event("output_item.added", output_index=index, item=item)


def item_done(index: Any, item: Any) -> dict[str, Any]:
    return event("output_item.done", output_index=index, item=item)


def part(verb: str, index: Any, value: Any, **fields: Any) -> dict[str, Any]:
    return event(f"content_part.{verb}", output_index=0, content_index=index, part=value, **fields)


def text(value: Any, index: Any = 0, content: Any = 0, **fields: Any) -> dict[str, Any]:
    return event("output_text.delta", output_index=index, content_index=content, delta=value, **fields)


def output_text(value: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": value, **fields}


def message(*parts: Any, **fields: Any) -> dict[str, Any]:
    return {**MESSAGE, **fields, "content": list(parts)}
