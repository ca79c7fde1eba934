"""What the worker's model says: it repeats, or calls the first tool when it is asked to."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

from examples.scripted_worker.tokens import generated, prompt


def answer(body: dict[str, Any], prefix: Sequence[int]) -> dict[str, Any]:
    """The whole completion, with its tokens where vLLM has them."""
    said = json.dumps(body["messages"][-1].get("content"))
    message: dict[str, Any] = {"role": "assistant", "content": f"I have read {said}.", "reasoning_content": "Read it."}
    finish = "stop"
    if "call the tool" in said and body.get("tools"):
        function = {"name": body["tools"][0]["function"]["name"], "arguments": '{"city": "Oslo"}'}
        message["tool_calls"] = [{"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}]
        finish = "tool_calls"
    asked, made = prompt(body["messages"], prefix), generated(json.dumps(message))
    tokens = [{"token": f"token_id:{token}", "logprob": -0.25, "top_logprobs": []} for token in made]
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": {"content": tokens}}
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": body.get("model", "worker"),
        "choices": [{**choice, "token_ids": made}],
        "prompt_token_ids": asked,
        "usage": {
            "prompt_tokens": len(asked),
            "completion_tokens": len(made),
            "total_tokens": len(asked) + len(made),
        },
    }
