"""Messages in the GenAI message schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_gym.dialects.attribute_values import searched
from otel_gym.dialects.message_json import instructions, tools, written
from otel_gym.dialects.parts import (
    Part,
    content_parts,
    part,
    server_tool_call,
    server_tool_call_response,
    tool_call,
    tool_call_response,
)

_RESULT = "_tool_result"


def input_messages(request: Mapping[str, Any]) -> str | None:
    """The messages of the request."""
    messages = request.get("messages")
    if not isinstance(messages, list):
        return None
    return written([_message(message, "unknown") for message in messages])


def system_instructions(request: Mapping[str, Any]) -> str | None:
    """The request's `system`."""
    return instructions(request.get("system"))


def tool_definitions(request: Mapping[str, Any]) -> str | None:
    """The tools of the request."""
    return tools(request.get("tools"))


def output_messages(response: Mapping[str, Any], unknown: str) -> str | None:
    """The one message of the answer.

    Args:
        unknown: the finish reason where there is none.
    """
    if not isinstance(response.get("content"), list):
        return None
    message = _message(response, "assistant")
    message["finish_reason"] = searched(response.get("stop_reason")) or unknown
    return written([message])


def _message(message: Any, role: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        return {"role": role, "parts": content_parts(message)}
    given = message.get("role")
    content = message.get("content")
    blocks = content if isinstance(content, list) else content_parts(content)
    return {
        "role": given if isinstance(given, str) and given else role,
        "parts": [_block(block) for block in blocks if block is not None] if blocks is content else blocks,
    }


def _block(block: Any) -> Part:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if kind == "tool_use":
        return tool_call(block.get("id"), block.get("name"), block.get("input"))
    if kind == "tool_result":
        result = tool_call_response(block.get("tool_use_id"), block.get("content"))
        return result | {"is_error": True} if block.get("is_error") is True else result
    if kind in ("server_tool_use", "mcp_tool_use"):
        return server_tool_call(block.get("id"), block.get("name"), _without_id(block, "id"))
    if isinstance(kind, str) and kind.endswith(_RESULT):
        return server_tool_call_response(block.get("tool_use_id"), _without_id(block, "tool_use_id"))
    return part(block)


def _without_id(block: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != key}
