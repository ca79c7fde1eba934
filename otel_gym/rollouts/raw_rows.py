"""One row of a JSONL file, changed in some of its keys and in not one byte beside.

A row holds token ids, log probabilities and rewards that others have written: read and written again, a number might
come out in another form, or another number. So the text of every other member stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from otel_gym_jsonl import json_text

_WHITE = " \t\n\r"
_decoder = json.JSONDecoder()


class Member(NamedTuple):
    """A member of the outermost object: its key, and where key and value stand in the text."""

    key: str
    start: int
    value: int
    end: int


def parse(line: bytes) -> dict[str, Any]:
    """The row of a line.

    Raises:
        ValueError: the line is no JSON object in UTF-8.
    """
    if line[:1] not in (b"{", b" ", b"\t"):
        raise ValueError(f"it begins with {line[:8]!r}, not with the '{{' of a JSON object")
    line.decode()  # json would take other encodings
    row = json_text.loads(line)
    if not isinstance(row, dict):
        raise ValueError("it is no JSON object")
    return row


def replace(line: bytes, changed: Mapping[str, Any]) -> list[bytes]:
    """The line with these keys set, in pieces; a key that is new comes last. Everything else keeps its bytes.

    Raises:
        ValueError: the line is no JSON object, or a value cannot be written as JSON.
    """
    text = line.decode()
    found = list(_members(text))
    pieces = []
    at = 0
    for member in found:
        if member.key in changed:
            pieces += [text[at : member.value].encode(), encode(changed[member.key])]
            at = member.end
    present = {member.key for member in found}
    added = [key for key in changed if key not in present]
    if added:
        end = found[-1].end if found else text.index("{") + 1
        pieces.append(text[at:end].encode())
        comma = b"," if found else b""
        for key in added:  # what is attached may be large: it is not copied once more
            pieces += [comma + json.dumps(key).encode() + b":", encode(changed[key])]
            comma = b","
        at = end
    pieces.append(text[at:].encode())
    return pieces


def encode(value: Any) -> bytes:
    """A value as JSON on one line; what orjson refuses (integers beyond 64 bits, lone surrogates) in ASCII.

    Raises:
        ValueError: it is nested too deep.
    """
    try:
        return json_text.dumps(value)
    except ValueError:
        try:
            return json.dumps(value, separators=(",", ":")).encode()
        except RecursionError:
            raise ValueError("a value is nested too deep to be written") from None


def _members(text: str) -> Iterator[Member]:
    """The members of the outermost object; the standard scanner finds where each value ends.

    Raises:
        ValueError: the text is no JSON object.
    """
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise ValueError("it is no JSON object")
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        start = at
        if text[at : at + 1] != '"':
            raise ValueError(f"no key at character {at + 1:,}")
        key, at = _decoder.raw_decode(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise ValueError(f"no colon at character {at + 1:,}")
        value = _skip(text, at + 1)
        try:
            _, end = _decoder.raw_decode(text, value)
        except RecursionError:
            raise ValueError("JSON nested too deep to be read") from None
        yield Member(key, start, value, end)
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "}":
            raise ValueError(f"no comma at character {at + 1:,}")


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] in _WHITE and at < len(text):
        at += 1
    return at
