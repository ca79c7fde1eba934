"""The model behind POST /v1/responses, as OpenAI's API speaks it."""

from __future__ import annotations

from typing import Any

from examples.scripted_model.script import NAME, SCRIPT, usage


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """The whole response for one request body."""
    items = [item for item in body["input"] if isinstance(item, dict)]
    turn = SCRIPT[sum(item.get("type") == "function_call_output" for item in items)]
    thought = {"type": "reasoning", "id": f"rs_{turn.id}", "summary": [{"type": "summary_text", "text": turn.thinking}]}
    said: dict[str, Any] = {"type": "message", "id": f"msg_{turn.id}", "role": "assistant", "status": "completed"}
    said["content"] = [{"type": "output_text", "text": turn.text, "annotations": []}]
    if turn.arguments:
        said = {"type": "function_call", "id": f"fc_{turn.id}", "call_id": f"call_{turn.id}", "status": "completed"}
        said |= {"name": "population", "arguments": turn.arguments}
    tokens_in, cached, reasoning, out = usage(turn, body["input"])
    return {
        "id": f"resp_{turn.id}",
        "object": "response",
        "created_at": 1_790_000_000,
        "status": "completed",
        "model": NAME,
        "output": [thought, said],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": body.get("tools", []),
        "usage": {
            "input_tokens": tokens_in,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": out,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": tokens_in + out,
        },
    }
