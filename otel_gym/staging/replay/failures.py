"""How a stream that has begun ends when its answer cannot be given, in each dialect's own words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from otel_gym.staging.replay.event_text import event


def failure_events(dialect: str, message: str, request: Mapping[str, Any], answer_id: str) -> Iterator[bytes]:
    """The events of an answer that failed; the last one is terminal.

    Args:
        dialect: `chat`, `responses` or `messages`.
        message: what the client may know of it.
        request: the client's.
        answer_id: `resp_…` for a response.
    """
    if dialect == "chat":
        yield event({"error": {"message": message, "type": "server_error", "param": None, "code": None}})
        yield event("[DONE]")
    elif dialect == "messages":
        yield event({"type": "error", "error": {"type": "api_error", "message": message}}, "error")
    else:
        begun: dict[str, Any] = {
            "id": answer_id,
            "object": "response",
            "created_at": 0,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": request.get("model"),
            "output": [],
            "parallel_tool_calls": request.get("parallel_tool_calls", True),
            "tool_choice": request.get("tool_choice", "auto"),
            "tools": request.get("tools", []),
            "usage": None,
        }
        failed = {**begun, "status": "failed", "error": {"code": "server_error", "message": message}}
        yield event({"type": "response.created", "response": begun, "sequence_number": 0}, "response.created")
        yield event({"type": "response.failed", "response": failed, "sequence_number": 1}, "response.failed")
