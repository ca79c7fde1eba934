"""A chat template and its tokens: a byte is a token, a role is one, and so is the end of an assistant's turn."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

ROLES = {"system": 256, "developer": 256, "user": 257, "assistant": 258, "tool": 259}
END = 300
FIRST_WORD = 1000


def rendered(message: dict[str, Any]) -> list[int]:
    """A message of the conversation as the template tokenizes it."""
    text = message.get("content") or ""
    if message.get("tool_calls"):
        text = f"{text}{json.dumps([call['function'] for call in message['tool_calls']])}"
    tokens = [ROLES[message["role"]], *(text if isinstance(text, str) else json.dumps(text)).encode()]
    return [*tokens, END] if message["role"] == "assistant" else tokens


def prompt(messages: Sequence[dict[str, Any]], prefix: Sequence[int]) -> list[int]:
    """The prompt's tokens: those of the calls before it exactly, then what has been said since."""
    turns, tokens = prefix.count(END), list(prefix)
    for message in messages:
        if turns == 0:
            tokens += rendered(message)
        turns -= message["role"] == "assistant" and turns > 0
    return [*tokens, ROLES["assistant"]]


def generated(text: str) -> list[int]:
    """What the model generated for a text: a token a word, as no template would cut it again."""
    return [*(FIRST_WORD + zlib.crc32(word.encode()) % 30_000 for word in text.split(" ")), END]
