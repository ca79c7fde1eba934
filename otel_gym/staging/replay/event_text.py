"""Server-sent events as bytes, and texts in pieces that clients with a bounded line can read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from otel_gym.errors import ConversionError
from otel_gym_jsonl import json_text

KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment that every client passes over."""

KEEP_ALIVE_SECONDS: Final = 15.0

PIECE: Final = 4096
"""Characters of one delta at most."""


def event(payload: Any, name: str | None = None) -> bytes:
    """One event; a text is its data as it stands.

    Raises:
        ConversionError: the payload is no JSON.
    """
    data = payload.encode("utf-8") if isinstance(payload, str) else json_bytes(payload)
    head = b"" if name is None else b"event: " + name.encode("ascii") + b"\n"
    return head + b"data: " + data + b"\n\n"


def json_bytes(value: Any) -> bytes:
    """A value as compact JSON on one line; of a lone surrogate, which has no bytes, U+FFFD is left.

    Raises:
        ConversionError: the value is no JSON: NaN, another type, too deep.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError) as error:
        raise ConversionError(f"the answer cannot be written as JSON: {error}") from None
    return json_text.mend_surrogates(text).encode("utf-8")


def pieces(text: str) -> Iterator[str]:
    """The text in pieces, none for an empty one."""
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))
