"""What the model says: it asks for one population, then for the other, then answers."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

NAME = "scripted-1"


@dataclass(frozen=True)
class Turn:
    """What the model does next: a thought, then either a tool call (its arguments, JSON) or a text."""

    id: str
    thinking: str
    arguments: str = ""
    text: str = ""


SCRIPT = (
    Turn("0", "I need both populations. Oslo first.", arguments='{"city": "Oslo"}'),
    Turn("1", "Now Bergen, so that I can compare.", arguments='{"city": "Bergen"}'),
    Turn("2", "717710 is more than 291940.", text="Oslo has more people than Bergen: 717,710 against 291,940."),
)


def pieces(text: str) -> list[str]:
    """Cut a text about as a tokenizer does; joined again they are the text."""
    return re.findall(r"\s*\S{1,6}", text)


def usage(turn: Turn, conversation: Any) -> tuple[int, int, int, int]:
    """Tokens (in, cached, reasoning, out); every turn but the first finds whole blocks of 64 in the cache."""
    tokens_in, reasoning = len(pieces(json.dumps(conversation))), len(pieces(turn.thinking))
    cached = 0 if turn is SCRIPT[0] else tokens_in // 64 * 64
    return tokens_in, cached, reasoning, reasoning + len(pieces(turn.text + turn.arguments))
