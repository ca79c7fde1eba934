"""JSON as the capture format reads and writes it.

Bodies are read as the reference reads them (every JSON that Python's own `json` takes, in any UTF) and written as it
writes them (orjson: compact, UTF-8, NaN and infinities as null). orjson does nearly all of the work; where it is
stricter than `json`, or silently wrong (integers beyond 64 bits become floats), the careful reader steps in.
"""

from __future__ import annotations

import codecs
import json
from typing import Any

import orjson

from otel_gym_jsonl.giving_way import give_way

_DIGITS_ALIKE = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19  # the shortest run of digits that may not fit 64 bits
_SLICE = 1 << 18
_LARGE = 1 << 20
_LEVELS = 254  # that orjson writes
_BAD_BYTES = "otel_gym_jsonl.bad_bytes"


def loads(data: bytes) -> Any:
    """The JSON value of a body.

    Raises:
        ValueError: the bytes are no JSON text, in no UTF, or nested too deep to be read.
    """
    return read(data)[0]


def read(data: bytes) -> tuple[Any, bool]:
    """The JSON value of a body, and whether `dumps` is certain to take it.

    The certainty is for large bodies only: who has it need not keep their text for the case that they cannot be stored.

    Raises:
        ValueError: as `loads` does.
    """
    if not has_long_number(data):
        try:
            return orjson.loads(data), len(data) >= _LARGE and _is_shallow(data)
        except orjson.JSONDecodeError:
            pass  # json takes more: NaN, 1e999, lone surrogates, a byte-order mark, UTF-16
    try:
        return json.loads(data), False
    except RecursionError:
        raise ValueError("JSON nested too deep to be read") from None


def _is_shallow(data: bytes) -> bool:
    """Whether so few arrays and objects begin in it that it cannot be nested too deep."""
    left = _LEVELS
    for opening in (b"[", b"{"):
        position = data.find(opening)
        while position >= 0:
            left -= 1
            if left < 0:
                return False
            position = data.find(opening, position + 1)
    return True


def has_long_number(data: bytes) -> bool:
    """Whether a run of 19 digits or more is somewhere in it: orjson would read such an integer as a float."""
    if len(data) <= _SLICE:
        return _LONG_NUMBER in data.translate(_DIGITS_ALIKE)
    view = memoryview(data)  # of a large body no second copy is made
    overlap = len(_LONG_NUMBER) - 1
    for start in range(0, len(data), _SLICE):
        if start % _LARGE == 0:
            give_way(start)
        if _LONG_NUMBER in bytes(view[start : start + _SLICE + overlap]).translate(_DIGITS_ALIKE):
            return True
    give_way(len(data))
    return False


def dumps_text(text: str) -> list[bytes]:
    """The canonical bytes of a text, a long one in several pieces, with a moment for the event loop in between."""
    if len(text) <= _LARGE:
        return [dumps(text)]
    pieces = [b'"']
    for start in range(0, len(text), _LARGE):
        pieces.append(dumps(text[start : start + _LARGE])[1:-1])
        give_way(_LARGE)
    return [*pieces, b'"']


def dumps(value: Any) -> bytes:
    """The canonical bytes of a value: compact, UTF-8, no newline at the end; NaN and infinities as null.

    Raises:
        ValueError: the value cannot be stored: an integer beyond 64 bits, a lone surrogate, more than 254 levels.
    """
    try:
        return orjson.dumps(value)
    except TypeError as exc:  # JSONEncodeError is one
        raise ValueError(str(exc)) from None


def mend_surrogates(text: str) -> str:
    """Join surrogate halves that stand next to each other; a half that is alone becomes U+FFFD.

    Streams may cut the two escapes of one character over two deltas (divergence 2).
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def as_text(data: bytes) -> str:
    """A body as text that can always be stored (divergence 1).

    Surrogates that the bytes spell out become lower-case `\\udXXX` escapes, other bad bytes U+FFFD.
    """
    return data.decode("utf-8", _BAD_BYTES)


def _escape_bad_bytes(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    three = error.object[error.start : error.start + 3]
    if len(three) == 3 and three[0] == 0xED and 0xA0 <= three[1] <= 0xBF and 0x80 <= three[2] <= 0xBF:
        return f"\\ud{((three[1] & 0x3F) << 6 | (three[2] & 0x3F)) & 0xFFF:03x}", error.start + 3
    return "�", error.end


codecs.register_error(_BAD_BYTES, _escape_bad_bytes)
