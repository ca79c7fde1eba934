"""A request of the Messages API, for a backend that speaks chat."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from otel_gym.errors import ConversionError
from otel_gym.staging.backend.parts import a_list, a_text, an_object, function_call, function_tool, joined, named_choice

_RENAMED = {"stop_sequences": "stop"}
_DROPPED = frozenset(
    {
        "cache_control",
        "container",
        "context_management",
        "diagnostics",
        "inference_geo",
        "messages",
        "metadata",
        "output_config",
        "service_tier",
        "speed",
        "stream",
        "system",
        "thinking",
        "tool_choice",
        "tools",
    }
)
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def from_messages(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request as a chat request, with flat names of tools as they stand.

    Tools that the provider itself would run are offers that a backend cannot make: they are left out. So are thoughts
    that are redacted.

    Args:
        request: is not changed.

    Raises:
        ConversionError: it holds what chat cannot say.
    """
    for key in ("mcp_servers", "previous_message_id"):
        if request.get(key):
            raise ConversionError(f"{key} needs a server that this is not")
    chat = {
        _RENAMED.get(key, key): value for key, value in request.items() if key not in _DROPPED and value is not None
    }
    chat["messages"] = list(_messages(request))
    tools = [an_object("tool", tool) for tool in a_list("tools", request.get("tools"))]
    ours = [function_tool(tool, tool["input_schema"]) for tool in tools if "input_schema" in tool]
    choice = an_object("tool_choice", request.get("tool_choice") or {})
    if ours:
        chat["tools"] = ours
        if choice:
            chat["tool_choice"] = _choice(choice)
    if choice.get("disable_parallel_tool_use"):
        chat["parallel_tool_calls"] = False
    wanted = an_object("format", an_object("output_config", request.get("output_config") or {}).get("format") or {})
    if wanted.get("type") == "json_schema":
        schema = {"name": "output", "schema": wanted.get("schema"), "strict": True}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    return chat


def _choice(choice: Mapping[str, Any]) -> Any:
    kind = choice.get("type")
    if kind == "tool":
        return named_choice(choice.get("name"))
    if kind not in _CHOICES:
        raise ConversionError(f"a tool choice of type {kind!r:.80} cannot be said to a chat backend")
    return _CHOICES[kind]


def _messages(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    system = request.get("system")
    if system:
        blocks = system if isinstance(system, list) else [{"type": "text", "text": system}]
        texts = [
            a_text("text of the system prompt", an_object("block of the system prompt", b).get("text")) for b in blocks
        ]
        yield {"role": "system", "content": "\n".join(texts)}
    for message in a_list("messages", request.get("messages")):
        role, content = an_object("message", message).get("role"), message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else a_list("content", content)
        blocks = [an_object("content block", block) for block in blocks]
        if role == "assistant":
            yield _assistant(blocks)
        else:
            yield from _user(a_text("role", role), blocks)


def _assistant(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    texts, thoughts, calls = [], [], []
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            texts.append(a_text("text", block.get("text")))
        elif kind == "thinking":
            thoughts.append(a_text("thinking", block.get("thinking")))
        elif kind == "tool_use":
            calls.append(function_call(block.get("id"), block.get("name"), _arguments(block.get("input"))))
        elif kind != "redacted_thinking":
            raise ConversionError(f"an assistant's block of type {kind!r:.80} cannot be said to a chat backend")
    message: dict[str, Any] = {"role": "assistant", "content": joined(texts)}
    if thoughts:
        message["reasoning_content"] = joined(thoughts)
    return {**message, "tool_calls": calls} if calls else message


def _arguments(given: Any) -> str:
    """The input as text; arguments that were no JSON object come back as they were."""
    if isinstance(given, dict) and set(given) == {"_raw"} and isinstance(given["_raw"], str):
        return given["_raw"]
    return json.dumps(an_object("input of a tool call", given), ensure_ascii=False)


def _user(role: str, blocks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Tool results first, each a message of its own, as chat wants them right behind the calls."""
    for block in blocks:
        if block.get("type") == "tool_result":
            call_id = a_text("tool_use_id", block.get("tool_use_id"))
            content = block.get("content")
            inner = [
                an_object("content block", part)
                for part in ([] if isinstance(content, str) else a_list("content", content))
            ]
            said = content if isinstance(content, str) else _content(inner)
            yield {"role": "tool", "tool_call_id": call_id, "content": said}
    rest = [block for block in blocks if block.get("type") != "tool_result"]
    if rest or not blocks:
        yield {"role": role, "content": _content(rest)}


def _content(blocks: list[dict[str, Any]]) -> Any:
    parts = [_part(block) for block in blocks]
    if all(part["type"] == "text" for part in parts) and len(parts) < 2:
        return "".join(part["text"] for part in parts)
    return parts


def _part(block: dict[str, Any]) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": a_text("text", block.get("text"))}
    source = block.get("source")
    if kind == "image" and isinstance(source, dict):
        if source.get("type") == "url":
            return {"type": "image_url", "image_url": {"url": a_text("url", source.get("url"))}}
        if source.get("type") == "base64":
            data = f"data:{source.get('media_type')};base64,{a_text('data', source.get('data'))}"
            return {"type": "image_url", "image_url": {"url": data}}
    raise ConversionError(f"a block of type {kind!r:.80} cannot be said to a chat backend")
