"""The model behind POST /v1/chat/completions, as vLLM and its kin speak it (`reasoning_content`)."""

from __future__ import annotations

from typing import Any

from examples.scripted_model.script import NAME, SCRIPT, usage


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """The whole completion for one request body."""
    turn = SCRIPT[sum(message["role"] == "tool" for message in body["messages"])]
    message: dict[str, Any] = {"role": "assistant", "content": turn.text, "reasoning_content": turn.thinking}
    if turn.arguments:
        function = {"name": "population", "arguments": turn.arguments}
        message["tool_calls"] = [{"id": f"call_{turn.id}", "type": "function", "function": function}]
    tokens_in, cached, reasoning, out = usage(turn, body["messages"])
    return {
        "id": f"chatcmpl-{turn.id}",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": NAME,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if turn.arguments else "stop"}],
        "usage": {
            "prompt_tokens": tokens_in,
            "completion_tokens": out,
            "total_tokens": tokens_in + out,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        },
    }
