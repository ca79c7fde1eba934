"""Token counts of an answer, from whatever shape of `usage` its provider gave. Unknown is None, never 0.

Source: "ModelCallRecord" of the rollout specification; conformance topic `usage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class TokenCounts(NamedTuple):
    """Tokens of one call; `cached` is the part of `tokens_in` that was read from a cache."""

    tokens_in: int | None = None
    tokens_out: int | None = None
    reasoning: int | None = None
    total: int | None = None
    cached: int | None = None
    cache_creation: int | None = None


def token_counts(usage: Any) -> TokenCounts:
    """Read a `usage` object of the Responses, Chat Completions or Messages API."""
    if not isinstance(usage, (dict, Mapping)):  # dict first: it is one nearly always, and quicker to know
        return TokenCounts()
    tokens_in = _first(usage, "input_tokens", "prompt_tokens")
    tokens_out = _first(usage, "output_tokens", "completion_tokens")
    # Anthropic counts input from and into the cache beside `input_tokens`, OpenAI within it.
    cache_read = _first(usage, "cache_read_input_tokens")
    cache_creation = _first(usage, "cache_creation_input_tokens")
    if cache_read is not None or cache_creation is not None:
        beside = (cache_read or 0) + (cache_creation or 0)
        if tokens_in is not None:
            tokens_in += beside
        elif beside > 0:
            tokens_in = beside
    total = _first(usage, "total_tokens")
    if total is None and tokens_in is not None and tokens_out is not None:
        total = tokens_in + tokens_out
    reasoning = _in_details(usage, ("output_tokens_details", "completion_tokens_details"), ("reasoning_tokens",))
    if reasoning is None:
        reasoning = _first(usage, "reasoning_output_tokens")
    cached = _in_details(
        usage, ("prompt_tokens_details", "input_tokens_details"), ("cached_tokens", "cached_input_tokens")
    )
    if cached is None:
        cached = cache_read if cache_read is not None else _first(usage, "cached_input_tokens")
    return TokenCounts(tokens_in, tokens_out, reasoning, total, cached, cache_creation)


def _first(counts: Mapping[str, Any], *keys: str) -> int | None:
    """The first of the keys whose value is a count: a real int (no bool) that is not negative."""
    for key in keys:
        value = counts.get(key)
        if type(value) is int and value >= 0:
            return value
    return None


def _in_details(usage: Mapping[str, Any], details: tuple[str, ...], keys: tuple[str, ...]) -> int | None:
    for name in details:
        inner = usage.get(name)
        if isinstance(inner, (dict, Mapping)) and (count := _first(inner, *keys)) is not None:
            return count
    return None
