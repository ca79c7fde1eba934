"""Large bodies are mostly a few long strings, such as images in base64: these are copied, not parsed.

A parser would hold the interpreter for the whole length of them, and each value that it makes is one more copy in
memory. So they are cut out before it reads, checked piece by piece, and put back into what is written, or, where the
value itself is wanted, into that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from otel_gym_jsonl.giving_way import give_way

_LONG: Final = 1 << 16
_MOST_QUOTES: Final = 1 << 15  # a body with more of them is no such body
_SLICE: Final = 1 << 18
_PAUSE: Final = 1 << 20
# Stands for a long string while it is away. Others may use these words too; then they are not counted out alike.
_STAND_IN: Final = b"\x7fa long string of otel-gym\x7f"
_STAND_IN_TEXT: Final = _STAND_IN.decode()
# What JSON would write in another way, or not at all.
_NOT_PLAIN: Final = bytes(range(0x20)) + b"\\"

Span = tuple[int, int]
"""Start and end of a string's inside in its body."""


def cut(data: bytes) -> tuple[bytes, list[Span]] | None:
    """The body without its long plain strings, and where these are; None where they are less than half of it.

    What is taken for a string may be none (numbers between two strings): then the rest is no JSON.
    """
    parts: list[bytes] = []
    spans: list[Span] = []
    start = size = 0
    quote = data.find(b'"')
    for _ in range(_MOST_QUOTES):
        following = data.find(b'"', quote + 1)
        if quote < 0 or following < 0:
            break
        if following - quote > _LONG and _is_plain(data, quote + 1, following):
            parts.append(data[start : quote + 1])
            spans.append((quote + 1, following))
            start = following
            size += following - quote
        quote = following
    else:
        return None
    if 2 * size < len(data):
        return None
    parts.append(data[start:])
    rest = _STAND_IN.join(parts)
    return (rest, spans) if rest.count(_STAND_IN) == len(spans) else None


def put_back(canonical: bytes, data: bytes, spans: list[Span]) -> bytes | None:
    """The canonical bytes of the whole body, from those of what `cut` left; None where a string is not there again."""
    between = canonical.split(_STAND_IN)
    if len(between) != len(spans) + 1:  # of two equal keys only one is kept
        return None
    view = memoryview(data)
    parts: list[bytes | memoryview] = []
    for before, (start, end) in zip(between, spans, strict=False):
        parts += (before, view[start:end])
    return b"".join([*parts, between[-1]])


def put_into(value: Any, data: bytes, spans: list[Span]) -> Any | None:
    """The value of the whole body, from that of what `cut` left, which is changed; None where a string is not there."""
    view = memoryview(data)
    left = iter(spans)
    try:
        whole = _filled(value, lambda: str(view[slice(*next(left))], "ascii"))
    except (StopIteration, RecursionError):
        return None
    return None if next(left, None) else whole  # of two equal keys only one is kept


def _filled(value: Any, next_text: Callable[[], str]) -> Any:
    if isinstance(value, str):
        return next_text() if value == _STAND_IN_TEXT else value
    if isinstance(value, dict):
        for key, one in value.items():
            if isinstance(one, (str, dict, list)):
                value[key] = _filled(one, next_text)
    elif isinstance(value, list):
        for position, one in enumerate(value):
            if isinstance(one, (str, dict, list)):
                value[position] = _filled(one, next_text)
    return value


def _is_plain(data: bytes, start: int, end: int) -> bool:
    """Whether JSON writes these bytes of a string just as they are: ASCII without controls and escapes."""
    for position in range(start, end, _SLICE):
        if (position - start) % _PAUSE == 0:
            give_way(position - start)
        piece = data[position : min(end, position + _SLICE)]
        if not piece.isascii() or len(piece.translate(None, _NOT_PLAIN)) != len(piece):
            return False
    return True
