"""Messages, instructions and tools as the JSON text that an attribute holds; any of them can be written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_gym.dialects.mending import mended
from otel_gym.dialects.parts import Part, content_parts, generic
from otel_gym_jsonl import json_text

_SECRETS: Final = frozenset({"authorization", "headers"})
_SKELETON: Final = ("role", "type", "name", "finish_reason")


def written(items: list[dict[str, Any]]) -> str:
    """A list as JSON text. An item that cannot be stored (too deep, a huge integer) is kept by its names only."""
    try:
        return json_text.dumps(items).decode()
    except ValueError:
        return "[" + ",".join(map(_written, items)) + "]"


def instructions(content: Any) -> str | None:
    """System instructions: texts, and what is no text as `generic`; None where there are none."""
    parts = [
        made if made["type"] in ("text", "generic") else generic(made["type"], made) for made in content_parts(content)
    ]
    return written(parts) if parts else None


def tools(definitions: Any) -> str | None:
    """The tools of a request, each with type and name; None where there are none.

    A function is brought to one form, whichever API wrote it. Other tools keep their fields, except those by which the
    provider would reach a server in the client's name.
    """
    if not isinstance(definitions, list) or not definitions:
        return None
    return written([_tool(tool) for tool in definitions])


def _tool(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, Mapping):
        return {"type": "unknown", "name": "unknown"}
    kind = tool.get("type")
    inner = tool.get(kind) if isinstance(kind, str) else None  # Chat: {"type": "function", "function": {…}}
    fields = dict(inner) if isinstance(inner, Mapping) else {key: tool[key] for key in tool if key != "type"}
    if "input_schema" in fields and kind in (None, "custom"):  # Messages
        fields["parameters"] = fields.pop("input_schema")
        kind = "function"
    if not isinstance(kind, str) or not kind:
        kind = "function"
    name = fields.get("name")
    made = {"type": kind, "name": name if isinstance(name, str) and name else kind}
    return made | {key: value for key, value in fields.items() if key not in made and key not in _SECRETS}


def _written(item: dict[str, Any]) -> str:
    try:
        return json_text.dumps(mended(item)).decode()
    except ValueError:
        kept: Part = {key: mended(item[key]) for key in _SKELETON if isinstance(item.get(key), str)}
        if "parts" in item:
            kept["parts"] = [{"type": "generic", "generic_type": "unstorable"}]
        return json_text.dumps(kept).decode()
