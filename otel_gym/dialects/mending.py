"""Rebuilt values that can be stored: no lone surrogates (`divergences.md`, row 2)."""

from __future__ import annotations

from typing import Any

from otel_gym_jsonl import json_text


def mended(value: Any) -> Any:
    """The JSON value with the surrogate halves in its strings joined, or U+FFFD where they are alone.

    A value that the encoder refuses for another reason (nested too deep, integers beyond 64 bits) comes back as good as
    it was: what becomes of the whole response then is row 1's business.
    """
    if isinstance(value, str):
        return json_text.mend_surrogates(value)
    try:
        json_text.dumps(value)  # far quicker than a walk, and nearly always right
    except ValueError:
        try:
            return _walk(value)
        except RecursionError:
            pass
    return value


def _walk(value: Any) -> Any:
    if isinstance(value, str):
        return json_text.mend_surrogates(value)
    if isinstance(value, list):
        return [_walk(item) for item in value]
    if isinstance(value, dict):
        return {json_text.mend_surrogates(key): _walk(item) for key, item in value.items()}
    return value
