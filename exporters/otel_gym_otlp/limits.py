"""The user's limits for spans: they hold for the mirror, never for the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from opentelemetry.sdk.trace import SpanLimits

MAX_ATTRIBUTES = 128


@lru_cache(maxsize=1)
def standard_limits() -> tuple[int | None, int | None]:
    """By the standard variables, read once: most attributes of a span, most characters of a value."""
    try:
        return of_limits(SpanLimits())
    except ValueError:  # a variable that is no number: the SDK would not start with it
        return MAX_ATTRIBUTES, None


def of_limits(limits: SpanLimits) -> tuple[int | None, int | None]:
    """The two that matter here; never more attributes than backends are used to."""
    most = limits.max_span_attributes
    return MAX_ATTRIBUTES if most is None else min(most, MAX_ATTRIBUTES), limits.max_span_attribute_length


def limited(attributes: dict[str, Any], most: int | None, longest: int | None) -> dict[str, Any]:
    """The first so many attributes, their texts cut to so many characters."""
    if most is not None and len(attributes) > most:
        attributes = dict(list(attributes.items())[:most])
    if longest is None:
        return attributes
    return {key: _cut(value, longest) for key, value in attributes.items()}


def _cut(value: Any, longest: int) -> Any:
    if isinstance(value, str):
        return value[:longest]
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_cut(item, longest) for item in value]
    return value
