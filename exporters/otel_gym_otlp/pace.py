"""How much is sent at once, and when: learned from what became of the requests before. Not locked."""

from __future__ import annotations

import random
import time

from otel_gym_otlp.outcome import Fate, Outcome

LINGER_SECONDS = 0.25  # spans that come within it share a request
BATCH_BYTES = 3_500_000  # below the 4 MiB that gRPC receivers take, whatever the protocol
SMALLEST_BATCH_BYTES = 64 * 1024
FIRST_BATCH_SPANS = (
    8  # doubled while the backend is quick, so that a slow one is not asked for more than it can do in time
)
LARGEST_BATCH_SPANS = 512
QUICK_SECONDS = 1.0
BACKOFF_SECONDS = (0.5, 5.0)
UNUSABLE_BACKOFF_SECONDS = 30.0
LONGEST_WAIT_SECONDS = 300.0  # whatever a receiver asks for
HURRIED_BACKOFF_SECONDS = 0.25
LEARNED_SECONDS = 60.0  # how long it is believed that the receiver takes small requests only

_chance = random.SystemRandom()  # the state of `random` is the application's: forked workers share it, tests seed it


class Pace:
    """Of one destination.

    Attributes:
        batch_spans, batch_bytes: most of one request.
        streak: failures since the last success.
    """

    def __init__(self) -> None:
        self.batch_spans = FIRST_BATCH_SPANS
        self.batch_bytes = BATCH_BYTES
        self.streak = 0
        self._span_bytes: int | None = None
        self._learned_at = 0.0
        self._not_before = 0.0
        self._failed_at = 0.0

    def resume_at(self, waiting: int, since: float, *, hurried: bool) -> float:
        """When (monotonic) the next request may go.

        Args:
            waiting: spans in the queue.
            since: when the first of them came.
            hurried: somebody waits for the queue to be empty.
        """
        if hurried:
            return self._failed_at + HURRIED_BACKOFF_SECONDS
        if waiting >= self.batch_spans:
            return self._not_before
        return max(self._not_before, since + LINGER_SECONDS)

    def most_of_a_span(self, by_protocol: int) -> int:
        """Packed size above which a span goes without content, not even tried."""
        if self._span_bytes is not None and time.monotonic() - self._learned_at > LEARNED_SECONDS:
            self.batch_bytes, self._span_bytes = BATCH_BYTES, None
        return by_protocol if self._span_bytes is None else min(by_protocol, self._span_bytes)

    def succeeded(self, spans: int, took: float) -> None:
        """A request of so many spans was taken, after so many seconds."""
        self.streak = 0
        self._not_before = 0.0
        if took >= QUICK_SECONDS:
            self.batch_spans = max(1, min(self.batch_spans, int(spans / took)))
        elif spans >= self.batch_spans:
            self.batch_spans = min(2 * self.batch_spans, LARGEST_BATCH_SPANS)

    def too_large(self, spans: int, size: int) -> None:
        """A request of so many spans and bytes was larger than the receiver takes."""
        self._learned_at = time.monotonic()
        if spans == 1:
            self._span_bytes = max(SMALLEST_BATCH_BYTES, size - 1)
        else:
            self._span_bytes = self._span_bytes or BATCH_BYTES
            self.batch_bytes = max(SMALLEST_BATCH_BYTES, min(self.batch_bytes, size // 2))

    def failed(self, spans: int, outcome: Outcome) -> None:
        """A request of so many spans is to be sent again, or another one, later."""
        self.streak += 1
        self._failed_at = time.monotonic()
        self.batch_spans = max(1, min(FIRST_BATCH_SPANS, spans // 2))
        first, longest = BACKOFF_SECONDS
        if outcome.fate is Fate.UNUSABLE:
            longest = UNUSABLE_BACKOFF_SECONDS
        pause = min(longest, first * 2.0 ** min(self.streak - 1, 16)) * _chance.uniform(0.8, 1.2)
        self._not_before = self._failed_at + max(pause, min(outcome.after or 0.0, LONGEST_WAIT_SECONDS))
