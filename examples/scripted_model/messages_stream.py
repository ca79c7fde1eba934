"""The same message in events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from examples.scripted_model.messages import answer
from examples.scripted_model.script import pieces

EMPTY: dict[str, dict[str, Any]] = {
    "thinking": {"thinking": "", "signature": ""},
    "text": {"text": ""},
    "tool_use": {"input": {}},
}


def deltas(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A content block cut into what each event adds to it."""
    if block["type"] == "thinking":
        yield from ({"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"]))
        yield {"type": "signature_delta", "signature": block["signature"]}
    elif block["type"] == "text":
        yield from ({"type": "text_delta", "text": piece} for piece in pieces(block["text"]))
    else:
        arguments = json.dumps(block["input"])
        yield from ({"type": "input_json_delta", "partial_json": piece} for piece in pieces(arguments))


def events(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events, each named by its `type`."""
    whole = answer(body)
    yield {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}
    for index, block in enumerate(whole["content"]):
        yield {"type": "content_block_start", "index": index, "content_block": {**block, **EMPTY[block["type"]]}}
        yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas(block))
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": whole["stop_reason"]}, "usage": whole["usage"]}
    yield {"type": "message_stop"}
