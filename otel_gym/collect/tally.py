"""What a collection has done so far, in numbers."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from otel_gym.collect.result_row import ResultRow
from otel_gym.collect.tasks import Pair

FAILURES_KEPT = 20


@dataclass(slots=True)
class Tally:
    """Counts; all of rollouts unless said.

    Attributes:
        wanted: that the input asks for; None until it has been counted.
        earlier: that had a result before this collection.
        done: that have got one, on disk.
        failed: rows without a result that were written, by code.
        retried: posts that were tried again.
        calls: model calls captured.
        tokens: of those calls, as far as they are known.
        gaps: rows that have a gap of the capture, by its code.
        unattributed: model calls, by reason, that came to the model servers without a rollout meanwhile.
        examples: the first failures: pair, or line of the input, and message.
        torn: whether a torn last line was cut off.
        damaged: lines of the output that are no rows.
        interrupted: whether it was stopped before its end.
    """

    wanted: int | None = None
    earlier: int = 0
    done: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    retried: int = 0
    calls: int = 0
    tokens: int = 0
    gaps: Counter[str] = field(default_factory=Counter)
    unattributed: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[Pair | int, str]] = field(default_factory=list)
    torn: bool = False
    damaged: int = 0
    interrupted: bool = False
    began: float = field(default_factory=time.monotonic)

    def add(self, key: Pair | int, row: ResultRow) -> None:
        """Count a row that is on disk."""
        if row.failure is None:
            self.done += 1
        else:
            self.failed[row.failure.code] += 1
            if len(self.examples) < FAILURES_KEPT:
                self.examples.append((key, row.failure.message))
        capture = row.capture
        if capture is not None:
            self.calls += len(capture["calls"])
            self.tokens += capture["metrics"]["tokens_total"] or 0
            self.gaps.update({gap["code"] for gap in capture.get("gaps", ())})

    @property
    def with_result(self) -> int:
        """Rollouts that have a result, now or before."""
        return self.earlier + self.done

    @property
    def missing(self) -> int | None:
        """Rollouts without any row of this collection or before it; None while the input has not been counted."""
        if self.wanted is None:
            return None
        return max(0, self.wanted - self.with_result - self.failed.total())

    @property
    def complete(self) -> bool:
        """Whether every rollout that is wanted has a result."""
        return not self.failed and self.missing == 0 and not self.interrupted

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.began

    @property
    def seconds_left(self) -> float | None:
        """If the rest takes as long as what has been; None where nothing can be said."""
        ended = self.done + self.failed.total()
        if not ended or self.missing is None:
            return None
        return self.seconds / ended * self.missing
