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

from otel_gym_jsonl import long_strings
from otel_gym_jsonl.giving_way import give_way

_DIGITS_ALIKE = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19  # the shortest run of digits that may not fit 64 bits
_SLICE = 1 << 18
_LARGE = 1 << 20
_MOST_PARTS = 1 << 12
_MOST_LEVELS = 253  # of a body: orjson writes one more, which is the record
_BAD_BYTES = "otel_gym_jsonl.bad_bytes"


def loads(data: bytes) -> Any:
    """The JSON value of a body.

    Raises:
        ValueError: the bytes are no JSON text, in no UTF, or nested too deep to be read.
    """
    if len(data) >= _LARGE and (value := _loads_large(data)) is not None:
        return value
    if not has_long_number(data):
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            pass  # json takes more: NaN, 1e999, lone surrogates, a byte-order mark, UTF-16
    return _loads_careful(data)


def _loads_large(data: bytes) -> Any | None:
    """The value, where the body is mostly long strings; None where it has to be read whole."""
    found = long_strings.cut(data)
    if found is None:
        return None
    rest, spans = found
    try:
        value = loads(rest)
    except ValueError:
        return None
    return long_strings.put_into(value, data, spans)


def _loads_careful(data: bytes) -> Any:
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("JSON nested too deep to be read") from None


def stored_object(data: bytes) -> tuple[dict[str, Any] | None, bytes | None, str]:
    """A body that is a JSON object and can be stored: the object, its canonical bytes, and "".

    Any other body: None, None, and its text. In the object of a large body, long strings may be stand-ins.
    """
    try:
        value, canonical = (_of_large(data) if len(data) >= _LARGE else None) or _read_and_write(data)
        if isinstance(value, dict):
            return value, canonical, ""
    except ValueError:
        pass  # no JSON, or none that can be stored
    return None, None, as_text(data)


def _of_large(data: bytes) -> tuple[Any, bytes] | None:
    """The value, and its canonical bytes, where the body is mostly long strings; None where it has to be read whole."""
    found = long_strings.cut(data)
    if found is None:
        return None
    rest, spans = found
    try:
        value, canonical = _read_and_write(rest)
    except ValueError:
        return None
    if canonical == rest:
        return value, data
    give_way(len(data))
    whole = long_strings.put_back(canonical, data, spans)
    return None if whole is None else (value, whole)


def _read_and_write(data: bytes) -> tuple[Any, bytes]:
    """The value, and its canonical bytes."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    else:
        give_way(len(data))
        canonical = dumps_body(value, len(data))
        # Most clients write bodies just as they are stored, and then no number was changed in reading.
        if canonical == data or not has_long_number(data):
            return value, canonical
    value = _loads_careful(data)
    return value, dumps_body(value, len(data))


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


def dumps_body(value: Any, size: int) -> bytes:
    """The canonical bytes of a body that was read from so many bytes: as `dumps`, but of 253 levels at most.

    The record around it is one more, and who reads the record must be able to write it again.

    Raises:
        ValueError: the value cannot be stored.
    """
    if size >= _LARGE and _has_few_parts(value):  # a large body is not copied if that can be helped
        return dumps(value)
    return dumps([value])[1:-1]


def dumps_read(value: Any, size: int) -> bytes:
    """The same as `dumps_body`, but after long texts the event loop may run in between.

    Raises:
        ValueError: the value cannot be stored.
    """
    if size < _LARGE or not _has_few_parts(value):
        return dumps_body(value, size)
    texts = _LongTexts()
    copy = texts.apart(value)
    return dumps(copy if texts.found else value)


def _has_few_parts(value: Any) -> bool:
    """Whether it is quickly walked through: no very many parts, and no more levels than a body may have."""
    level = [value] if isinstance(value, (dict, list)) else []
    parts = 0
    for _ in range(_MOST_LEVELS):
        parts += sum(map(len, level))
        if parts >= _MOST_PARTS:
            return False
        within = [one.values() if isinstance(one, dict) else one for one in level]
        level = [item for items in within for item in items if isinstance(item, (dict, list))]
        if not level:
            return True
    return False


class _LongTexts:
    """Writes the long texts of a value as JSON, ahead of the rest."""

    def __init__(self) -> None:
        self.found = False

    def apart(self, value: Any) -> Any:
        """The same value, as orjson writes it."""
        if isinstance(value, dict):
            return {key: self.apart(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.apart(one) for one in value]
        if isinstance(value, str) and len(value) > _LARGE:
            self.found = True
            return orjson.Fragment(b"".join(dumps_text(value)))
        return value


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
