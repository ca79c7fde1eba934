"""JSON values as span attributes: of the right type, or not at all.

Every function gives None for a value that is not of its kind, since an attribute that is not known is absent. A bool
is no number, although Python thinks so.
"""

from __future__ import annotations

import math
from typing import Any, Final

from otel_gym.semconv import LONGEST_SEARCHED
from otel_gym_jsonl import json_text

_LARGEST: Final = 2**63 - 1


def searched(value: Any) -> str | None:
    """A text that says something, short enough to be found by a backend."""
    if not isinstance(value, str) or not value:
        return None
    if len(value) <= LONGEST_SEARCHED and value.isascii():
        return value
    return json_text.mend_surrogates(value[: LONGEST_SEARCHED + 1])[:LONGEST_SEARCHED]


def whole(value: Any) -> int | None:
    """An integer of 64 bits, also where a client has written it as `40.0`."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and -_LARGEST <= value <= _LARGEST else None


def number(value: Any) -> float | None:
    """A finite number, as a float whatever it was written as: one attribute has one type."""
    if type(value) is int:
        return float(value) if -_LARGEST <= value <= _LARGEST else None
    return value if isinstance(value, float) and math.isfinite(value) else None
