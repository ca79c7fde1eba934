"""Totals over the calls of a rollout, one call at a time.

Source: "ModelCallRecord" of the rollout specification (`metrics`).
"""

from __future__ import annotations

from typing import Any, Protocol

_SUMMED = ("tokens_in", "tokens_out", "tokens_reasoning", "tokens_total", "cached_tokens", "latency_total_ms")


class Counted(Protocol):
    """What the totals ask of a call; a `ModelCallRecord` has it. None means unknown."""

    tokens_in: int | None
    tokens_out: int | None
    tokens_reasoning: int | None
    tokens_total: int | None
    cached_tokens: int | None
    latency_total_ms: float | None


class ModelCallMetrics:
    """Sums over the values that are known; a sum of nothing known is None.

    metrics = ModelCallMetrics()
    for call in calls:
        metrics.add(call)
    metrics.totals()
    """

    def __init__(self) -> None:
        self._sums: dict[str, Any] = dict.fromkeys(_SUMMED)
        self.num_calls = 0

    def add(self, call: Counted) -> None:
        """Take one call into the totals."""
        self.num_calls += 1
        sums = self._sums
        for name in _SUMMED:
            value = getattr(call, name)
            if value is not None:
                sums[name] = value if sums[name] is None else sums[name] + value

    def totals(self) -> dict[str, Any]:
        """`tokens_in`, `tokens_out`, `tokens_reasoning`, `tokens_total`, `cached_tokens`, `latency_total_ms` (each a
        sum or None) and `num_calls`."""
        return {**self._sums, "num_calls": self.num_calls}
