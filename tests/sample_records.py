"""Records as a capture writes them, for tests that read."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

_numbers = itertools.count(1)


def record(**changes: Any) -> dict[str, Any]:
    """A clean chat call with an id of its own: one tool call, 812 tokens in (768 cached), 57 out; changed as given."""
    return {
        "model_call_id": f"{next(_numbers):032x}",
        "dialect": "chat",
        "model_ref": {"type": "responses_api_models", "name": "policy"},
        "started_at": 1764000001.0,
        "completed_at": 1764000002.5,
        "latency_ms": 1500.0,
        "latency_ttft_ms": 210.5,
        "status_code": 200,
        "error_category": None,
        "request": {"model": "qwen3-coder-30b-a3b", "messages": [{"role": "user", "content": "Which tests fail?"}]},
        "response": response(),
        **changes,
    }


def response(**changes: Any) -> dict[str, Any]:
    """A chat completion, changed as given."""
    call = {"id": "call_1", "type": "function", "function": {"name": "run_shell", "arguments": '{"cmd":"pytest -q"}'}}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "qwen3-coder-30b-a3b",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"}
        ],
        "usage": {"prompt_tokens": 812, "completion_tokens": 57, "prompt_tokens_details": {"cached_tokens": 768}},
        **changes,
    }


def line(value: Any) -> bytes:
    """A record's line, with its newline."""
    return json.dumps(value).encode() + b"\n"


def capture(directory: Path, rollout_id: str, *lines: dict[str, Any] | bytes) -> Path:
    """Write a capture file: records, and bytes as they are."""
    path = directory / f"{rollout_id}.capture.jsonl"
    path.write_bytes(b"".join(item if isinstance(item, bytes) else line(item) for item in lines))
    return path
