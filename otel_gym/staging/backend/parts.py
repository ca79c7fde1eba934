"""Reading a client's request: what is of another type than its API says cannot be passed on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_gym.errors import ConversionError


def an_object(what: str, value: Any) -> dict[str, Any]:
    """The value, as the object that it must be.

    Raises:
        ConversionError: it is none.
    """
    if not isinstance(value, dict):
        raise ConversionError(f"{what} is an object, got {type(value).__name__}")
    return value


def a_list(what: str, value: Any) -> list[Any]:
    """The value, as the list that it must be; null is an empty one.

    Raises:
        ConversionError: it is none.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConversionError(f"{what} is a list, got {type(value).__name__}")
    return value


def a_text(what: str, value: Any) -> str:
    """The value, as the text that it must be.

    Raises:
        ConversionError: it is none.
    """
    if not isinstance(value, str):
        raise ConversionError(f"{what} is a text, got {type(value).__name__}")
    return value


def function_tool(tool: Mapping[str, Any], parameters: Any) -> dict[str, Any]:
    """A tool as chat has it, from the fields that the other two APIs write beside each other."""
    function = {"name": a_text("name of a tool", tool.get("name"))}
    function |= {key: tool[key] for key in ("description", "strict") if tool.get(key) is not None}
    if parameters is not None:
        function["parameters"] = parameters
    return {"type": "function", "function": function}


def function_call(call_id: Any, name: Any, arguments: str) -> dict[str, Any]:
    """A call of a tool as chat has it in its history."""
    function = {"name": a_text("name of a tool call", name), "arguments": arguments}
    return {"id": a_text("id of a tool call", call_id), "type": "function", "function": function}


def named_choice(name: Any) -> dict[str, Any]:
    """The choice of one function."""
    return {"type": "function", "function": {"name": a_text("name of the chosen tool", name)}}


def joined(texts: list[str]) -> str | None:
    """Texts as one; None without any."""
    return "".join(texts) if texts else None
