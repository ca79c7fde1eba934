"""Chat Completions in the GenAI message schema. System messages stand among the others, as the API has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_gym.dialects.attribute_values import searched
from otel_gym.dialects.message_json import tools, written
from otel_gym.dialects.parts import (
    Part,
    audio,
    content_parts,
    generic,
    json_value,
    reasoning,
    refusal,
    tool_call,
    tool_call_response,
)


def input_messages(request: Mapping[str, Any]) -> str | None:
    """The messages of the request."""
    messages = request.get("messages")
    if not isinstance(messages, list):
        return None
    return written([_message(message) for message in messages])


def system_instructions(request: Mapping[str, Any]) -> str | None:
    """None: this API gives no instructions apart from the messages."""
    return None


def tool_definitions(request: Mapping[str, Any]) -> str | None:
    """The tools of the request, or its `functions` of old."""
    return tools(request.get("tools")) or tools(request.get("functions"))


def output_messages(response: Mapping[str, Any], unknown: str) -> str | None:
    """A message for each choice.

    Args:
        unknown: the finish reason of a choice that has none.
    """
    choices = response.get("choices")
    if not isinstance(choices, list):
        return None
    messages = []
    for choice in choices:
        if isinstance(choice, Mapping):
            message = _message(choice.get("message"), "assistant")
            message["finish_reason"] = searched(choice.get("finish_reason")) or unknown
            messages.append(message)
    return written(messages)


def _message(message: Any, role: str = "unknown") -> dict[str, Any]:
    if not isinstance(message, Mapping):
        return {"role": role, "parts": content_parts(message)}
    given = message.get("role")
    if isinstance(given, str) and given:
        role = given
    made: dict[str, Any] = {"role": role, "parts": _parts(message, role)}
    name = message.get("name")
    if isinstance(name, str) and name:
        made["name"] = name
    return made


def _parts(message: Mapping[str, Any], role: str) -> list[Part]:
    if role in ("tool", "function"):
        return [tool_call_response(message.get("tool_call_id"), message.get("content"))]
    parts: list[Part] = []
    for key in ("reasoning_content", "reasoning"):
        thoughts = message.get(key)
        if isinstance(thoughts, str) and thoughts:
            parts.append(reasoning(thoughts))
            break
    parts.extend(content_parts(message.get("content")))
    if isinstance(refused := message.get("refusal"), str) and refused:
        parts.append(refusal(refused))
    if isinstance(sound := message.get("audio"), Mapping):
        parts.append(audio(sound) or generic("audio", sound))
    calls = message.get("tool_calls")
    parts.extend(_call(call) for call in (calls if isinstance(calls, list) else ()))
    if isinstance(function := message.get("function_call"), Mapping):
        parts.append(tool_call(None, function.get("name"), json_value(function.get("arguments"))))
    return parts


def _call(call: Any) -> Part:
    if not isinstance(call, Mapping):
        return generic("tool_call", {"value": call})
    if isinstance(function := call.get("function"), Mapping):
        return tool_call(call.get("id"), function.get("name"), json_value(function.get("arguments")))
    if isinstance(custom := call.get("custom"), Mapping):
        return tool_call(call.get("id"), custom.get("name"), custom.get("input"))
    return generic(call.get("type"), call)
