"""The one tool that the agents offer, and its description as each API wants it."""

from __future__ import annotations

from typing import Any

QUESTION = "Which city has more people, Oslo or Bergen?"
DESCRIPTION = "The number of people who live in a city."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION: dict[str, Any] = {"name": "population", "description": DESCRIPTION, "parameters": SCHEMA, "strict": True}

RESPONSES_TOOL: Any = {"type": "function", **FUNCTION}
CHAT_TOOL: Any = {"type": "function", "function": FUNCTION}
MESSAGES_TOOL: Any = {"name": "population", "description": DESCRIPTION, "input_schema": SCHEMA}


def population(city: str) -> str:
    """How many people live there."""
    return {"Oslo": "717710", "Bergen": "291940"}[city]
