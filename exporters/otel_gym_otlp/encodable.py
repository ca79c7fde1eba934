"""Attribute values that every exporter can encode: one odd value must not cost its span, nor its neighbours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from otel_gym_jsonl import json_text

_INT64 = range(-(2**63), 2**63)


def text(of: str) -> str:
    """The same text, with what UTF-8 cannot say made good: halves of surrogate pairs joined, lone ones U+FFFD."""
    return json_text.mend_surrogates(of)


def value(of: Any) -> Any:
    """A str, bool, int of 64 bits, float, or a list of these; None for what is nothing."""
    kind = type(of)
    if kind is str:
        return text(of)
    if kind is bool or kind is float:
        return of
    if isinstance(of, int):
        return int(of) if of in _INT64 else str(int(of))
    if isinstance(of, str):
        return text(str(of))
    if isinstance(of, float):
        return float(of)
    if isinstance(of, (bytes, bytearray)):
        return json_text.as_text(bytes(of))
    if isinstance(of, Mapping):
        return text(json.dumps(of, default=str, ensure_ascii=False))
    if isinstance(of, Sequence):
        return [made for item in of if (made := value(item)) is not None]
    return None if of is None else text(str(of))


def attributes(of: dict[str, Any]) -> dict[str, Any]:
    """All of them, encodable; those that are nothing left out."""
    if all(map(str.isascii, of)) and all(map(_is_plain, of.values())):
        return of  # as it is nearly always
    return {text(key): made for key, item in of.items() if (made := value(item)) is not None}


def _is_plain(of: Any) -> bool:
    """Whether a value is encodable as it is, as far as that is quick to say."""
    kind = type(of)
    if kind is str:
        return str.isascii(of)
    if kind is int:
        return of in _INT64
    return kind is bool or kind is float or (kind is tuple and all(type(item) is str and item.isascii() for item in of))
