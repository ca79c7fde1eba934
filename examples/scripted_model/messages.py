"""The model behind POST /v1/messages, as Anthropic's API speaks it."""

from __future__ import annotations

import json
from typing import Any

from examples.scripted_model.script import NAME, SCRIPT, usage


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """The whole message for one request body."""
    contents = [message["content"] for message in body["messages"] if isinstance(message["content"], list)]
    turn = SCRIPT[sum(block["type"] == "tool_result" for content in contents for block in content)]
    said: dict[str, Any] = {"type": "text", "text": turn.text}
    if turn.arguments:
        said = {"type": "tool_use", "id": f"toolu_{turn.id}", "name": "population", "input": json.loads(turn.arguments)}
    tokens_in, cached, _, out = usage(turn, body["messages"])
    return {
        "id": f"msg_{turn.id}",
        "type": "message",
        "role": "assistant",
        "model": NAME,
        "content": [{"type": "thinking", "thinking": turn.thinking, "signature": f"signature-{turn.id}"}, said],
        "stop_reason": "tool_use" if turn.arguments else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": tokens_in - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": out,
        },
    }
