"""Responses in the GenAI message schema.

The API has a flat list of items; what one answer of the model consisted of (reasoning, calls, a message) becomes one
message with that many parts, in the answer and where a later request repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_gym.dialects.answer_facts import CLIENT_CALLS, finish_reasons
from otel_gym.dialects.media import inline
from otel_gym.dialects.message_json import instructions, tools, written
from otel_gym.dialects.parts import (
    Part,
    content_parts,
    generic,
    json_value,
    part,
    reasoning,
    server_tool_call,
    tool_call,
    tool_call_response,
)

_CALL: Final = "_call"
_OUTPUT: Final = "_call_output"
_OF_THE_MODEL: Final = frozenset({"reasoning", "compaction"})
_ENCRYPTED: Final = "encrypted_content"


def input_messages(request: Mapping[str, Any]) -> str | None:
    """The request's `input`: a text of the user, or items."""
    given = request.get("input")
    if isinstance(given, str):
        return written([{"role": "user", "parts": [{"type": "text", "content": given}]}])
    if not isinstance(given, list):
        return None
    messages: list[dict[str, Any]] = []
    for item in given:
        role, parts = _role(item), _parts(item)
        if role == "assistant" and messages and messages[-1]["role"] == role:
            messages[-1]["parts"].extend(parts)
        else:
            messages.append({"role": role, "parts": parts})
    return written(messages)


def system_instructions(request: Mapping[str, Any]) -> str | None:
    """The request's `instructions`: a text, or items with texts."""
    given = request.get("instructions")
    if not isinstance(given, list):
        return instructions(given)
    texts: list[Any] = []
    for item in given:
        content = item.get("content", item) if isinstance(item, Mapping) else item
        texts.extend(content if isinstance(content, list) else [content])
    return instructions(texts)


def tool_definitions(request: Mapping[str, Any]) -> str | None:
    """The tools of the request."""
    return tools(request.get("tools"))


def output_messages(response: Mapping[str, Any], unknown: str) -> str | None:
    """The items of the answer as one message.

    Args:
        unknown: the finish reason where there is none.
    """
    output = response.get("output")
    if not isinstance(output, list):
        return None
    parts = [made for item in output for made in _parts(item)]
    reason = next(iter(finish_reasons(response)), unknown)
    return written([{"role": "assistant", "parts": parts, "finish_reason": reason}])


def _role(item: Any) -> str:
    if not isinstance(item, Mapping):
        return "user"
    role, kind = item.get("role"), item.get("type")
    if isinstance(role, str) and role:
        return role
    if not isinstance(kind, str):
        return "user"
    if kind.endswith(_OUTPUT):
        return "tool"
    return "assistant" if kind.endswith(_CALL) or kind in _OF_THE_MODEL else "user"


def _parts(item: Any) -> list[Part]:
    kind = item.get("type") if isinstance(item, Mapping) else None
    if kind == "message" or (isinstance(item, Mapping) and kind is None and "content" in item):
        return content_parts(item.get("content"))
    if not isinstance(kind, str):
        return content_parts(item)
    if kind == "reasoning":
        return [_reasoning(item)]
    if kind.endswith(_OUTPUT):
        return [tool_call_response(item.get("call_id"), item.get("output"))]
    if kind in CLIENT_CALLS:
        return [tool_call(item.get("call_id") or item.get("id"), _tool_name(item, kind), _arguments(item))]
    if kind.endswith(_CALL):
        return _server_call(item, kind)
    return [part(item)]


def _reasoning(item: Mapping[str, Any]) -> Part:
    """The text of the reasoning, else its summary, else that there was some."""
    for key in ("content", "summary"):
        pieces = item.get(key)
        texts = [
            piece["text"]
            for piece in (pieces if isinstance(pieces, list) else ())
            if isinstance(piece, Mapping) and isinstance(piece.get("text"), str)
        ]
        if texts:
            return reasoning("\n".join(texts))
    made = generic("reasoning", {key: value for key, value in item.items() if key != _ENCRYPTED})
    return made | {"encrypted": True} if item.get(_ENCRYPTED) else made


def _server_call(item: Mapping[str, Any], kind: str) -> list[Part]:
    fields = dict(item)
    picture = inline(fields.get("result"), "image", _image_type(item)) if kind == "image_generation_call" else None
    if picture is not None:
        del fields["result"]
    call = server_tool_call(fields.pop("id", None), _tool_name(item, kind), fields)
    return [call] if picture is None else [call, picture]


def _image_type(item: Mapping[str, Any]) -> str:
    form = item.get("output_format")
    return f"image/{form}" if isinstance(form, str) and form else "image/png"


def _tool_name(item: Mapping[str, Any], kind: str) -> Any:
    return item.get("name") or kind.removesuffix(_CALL)


def _arguments(item: Mapping[str, Any]) -> Any:
    if "arguments" in item:
        return json_value(item["arguments"])
    return next((item[key] for key in ("input", "action", "actions", "operation") if key in item), None)
