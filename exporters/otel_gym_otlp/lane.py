"""The way to one destination: a queue, a thread, a sender. Whatever the backend does, only this thread waits for it."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter, deque
from typing import Any

from otel_gym_otlp.copies import Content, LightSpan
from otel_gym_otlp.outcome import Fate, Outcome, Sender
from otel_gym_otlp.rendering import Rendering
from otel_gym_otlp.span_queue import Entry, SpanQueue

logger = logging.getLogger(__name__)

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
HURRIED_BACKOFF_SECONDS = 0.1
SUSPICIOUS_BYTES = 256 * 1024
TRIES = 4
REPORT_SECONDS = 60.0

_Packed = tuple[Entry, Any, int]


class Lane:
    """Takes copies from any thread, and sends them on its own.

    Args:
        name: of the destination, for the log.
        sender: used by this lane's thread alone.
        rendering: what the destination's spans look like.
        content: whether it wants content.
        max_bytes, max_spans: of the queue.
        report_seconds: how often at most it logs what goes wrong.
    """

    def __init__(
        self,
        name: str,
        sender: Sender,
        rendering: Rendering,
        content: bool,
        *,
        max_bytes: int,
        max_spans: int,
        report_seconds: float = REPORT_SECONDS,
    ) -> None:
        self.name = name
        self.content = content
        self._sender = sender
        self._rendering = rendering
        self._max_bytes = max_bytes
        self._max_spans = max_spans
        self._report_seconds = report_seconds
        self._start()

    def _start(self) -> None:
        """All that a process has to itself."""
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._empty = threading.Condition(self._lock)
        self.queue = SpanQueue(self._max_bytes, self._max_spans)
        self.sent = 0
        self._thread: threading.Thread | None = None
        self._idle = False
        self._closing = False
        self._hurried = 0
        self._since = 0.0  # when the oldest that waits came
        self._not_before = 0.0
        self._last_failure = 0.0
        self._streak = 0
        self._max_batch_spans = FIRST_BATCH_SPANS
        self._batch_bytes = BATCH_BYTES
        self._span_bytes: int | None = None  # what the receiver was seen not to take
        self._trouble = ""
        self._reported: Counter[str] = Counter()
        self._next_report = 0.0

    # ------------------------------------------------------------------ any thread

    def wanted(self) -> bool:
        """Whether spans would go anywhere now."""
        return self._sender.wanted()

    def offer(self, span: LightSpan, content: Content) -> None:
        """Queue a copy. Never waits for the backend."""
        entry = Entry(span, content if self.content else None)
        with self._lock:
            if not len(self.queue):
                self._since = time.monotonic()
            self.queue.put(entry)
            self._closing = False
            self._ensure_thread()
            if self._idle or len(self.queue) == self._max_batch_spans:
                self._wake.notify()

    def prepare(self) -> None:
        """Start the thread, so that it loads what it needs before the first span comes."""
        with self._lock:
            self._closing = False
            self._ensure_thread()

    def hurry(self, on: bool) -> None:
        """Send without lingering, and again without the whole pause, as long as somebody waits for it."""
        with self._lock:
            self._hurried += 1 if on else -1
            self._wake.notify()

    def wait_until_empty(self, timeout: float) -> bool:
        """Returns whether everything is sent, or lost."""
        with self._lock:
            return self._empty.wait_for(lambda: not self.queue.spans, timeout)

    def close(self, timeout: float) -> None:
        """Count as lost what is left, and let the thread end; it gets so long. A later `offer` starts anew."""
        with self._lock:
            self._lose_waiting()
            self._closing = True
            self._wake.notify()
            thread = self._thread
            report = self._report(time.monotonic(), now_or_never=True)
        _log(report)
        if thread is not None:
            thread.join(timeout)

    def abandon(self) -> None:
        """In a forked child: the parent's thread is not here, its lock may be held, its spans are its own business."""
        self._start()
        self._sender.abandon()

    def _ensure_thread(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="otel-gym-mirror", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the process is ending, or at its limit: the queue is bounded
                return
            self._thread = thread

    # ------------------------------------------------------------------ the lane's thread

    def _run(self) -> None:
        self._sender.prepare()
        while (batch := self._next()) is not None:
            try:
                self._deliver(batch)
            except Exception as exc:  # noqa: BLE001  a fault of ours must not end the thread; its text may hold payload
                logger.error("otel-gym: the mirror failed on %d spans: %s", len(batch), type(exc).__name__)
                self._lose(batch, "a fault of the mirror")

    def _next(self) -> list[Entry] | None:
        """Wait for the next entries to send; None when the thread shall end."""
        while True:
            with self._lock:
                if not self.queue.spans:
                    self._empty.notify_all()
                now = time.monotonic()
                report = self._report(now)
                if report is None:
                    if self._closing:
                        if self._ended():
                            return None
                        continue
                    waiting = len(self.queue)
                    if not waiting:
                        unsaid = self._trouble or self.queue.shed != self._reported
                        self._idle = True
                        self._wake.wait(max(0.0, self._next_report - now) if unsaid else None)
                        self._idle = False
                        continue
                    pause = self._resume_at(waiting) - now
                    if pause <= 0:
                        return self.queue.take(self._max_batch_spans, self._batch_bytes)
                    self._wake.wait(pause)
            _log(report)

    def _ended(self) -> bool:
        """With the lock held: give everything back, unless somebody comes meanwhile."""
        self._lose_waiting()
        self._lock.release()
        try:
            self._sender.close()
        finally:
            self._lock.acquire()
        if self._closing:
            self._thread = None
        return self._closing

    def _lose_waiting(self) -> None:
        for entry in self.queue.take(len(self.queue), self.queue.bytes):
            self.queue.lose(entry)

    def _resume_at(self, waiting: int) -> float:
        if self._hurried:
            return self._last_failure + HURRIED_BACKOFF_SECONDS
        if waiting >= self._max_batch_spans:
            return self._not_before
        return max(self._not_before, self._since + LINGER_SECONDS)

    def _deliver(self, batch: list[Entry]) -> None:
        self._sender.prepare()
        if not self._sender.wanted():
            self._lose(batch, "the exporter is missing")
            return
        packed = []
        for entry in batch:
            item = self._pack(entry)
            if item is not None:
                packed.append(item)
            time.sleep(0)  # the server's threads first: this one holds the interpreter for one span at most
        pieces = deque(self._cut(packed))
        while pieces:
            piece = pieces.popleft()
            began = time.monotonic()
            outcome = self._sender.send([item for _, item, _ in piece])
            took = time.monotonic() - began
            if outcome.fate is Fate.SENT:
                self._delivered(piece, outcome, took)
            elif outcome.fate in (Fate.TOO_LARGE, Fate.BAD):
                pieces.extendleft(reversed(self._smaller(piece, outcome)))
            else:
                with self._lock:
                    self.queue.put_back([entry for later in pieces for entry, _, _ in later])
                self._failed(piece, outcome)
                return

    def _pack(self, entry: Entry) -> _Packed | None:
        """The entry as it is sent: without content where that is too large; None when it cannot be sent at all."""
        most = min(self._sender.max_span_bytes, self._span_bytes or self._sender.max_span_bytes)
        try:
            while True:
                attributes = self._rendering.attributes(entry, self._sender.limits())
                packed, size = self._sender.pack(entry.span, attributes)
                if size <= most or entry.content is None:
                    break
                with self._lock:
                    self.queue.lighten(entry)
        except Exception as exc:  # noqa: BLE001  one bad span costs only itself; its text may hold payload
            self._lose([entry], f"a span cannot be encoded ({type(exc).__name__})")
            return None
        return entry, packed, size

    def _cut(self, packed: list[_Packed]) -> list[list[_Packed]]:
        """Pieces that stay below the receiver's limit, or hold one span."""
        pieces: list[list[_Packed]] = []
        total = 0
        for item in packed:
            total += item[2]
            if not pieces or total > self._batch_bytes:
                pieces.append([])
                total = item[2]
            pieces[-1].append(item)
        return pieces

    def _delivered(self, piece: list[_Packed], outcome: Outcome, took: float) -> None:
        with self._lock:
            for entry, _, _ in piece:
                self.queue.settle(entry)
            self.sent += len(piece) - outcome.rejected
            if outcome.rejected:
                self.queue.shed["spans"] += outcome.rejected
                self._trouble = outcome.reason
            self._streak = 0
            self._not_before = 0.0
            if took < QUICK_SECONDS:
                if len(piece) >= self._max_batch_spans:
                    self._max_batch_spans = min(2 * self._max_batch_spans, LARGEST_BATCH_SPANS)
            else:
                self._max_batch_spans = max(1, min(self._max_batch_spans, int(len(piece) / took)))

    def _smaller(self, piece: list[_Packed], outcome: Outcome) -> list[list[_Packed]]:
        """What to try instead of a request that was not taken: halves, then the span without content, then nothing."""
        too_large = outcome.fate is Fate.TOO_LARGE
        size = sum(item[2] for item in piece)
        if len(piece) > 1:
            if too_large:
                self._batch_bytes = max(SMALLEST_BATCH_BYTES, min(self._batch_bytes, size // 2))
            middle = len(piece) // 2
            return [piece[:middle], piece[middle:]]
        entry = piece[0][0]
        if entry.content is not None:
            if too_large:
                self._span_bytes = size - 1
            with self._lock:
                self.queue.lighten(entry)
            lighter = self._pack(entry)
            return [] if lighter is None else [[lighter]]
        self._lose([entry], outcome.reason)
        return []

    def _failed(self, piece: list[_Packed], outcome: Outcome) -> None:
        """To be sent again, later; what may be the request's own fault goes to the end, and in the end away."""
        now = time.monotonic()
        uncertain = outcome.fate is Fate.UNCERTAIN
        with self._lock:
            self._streak += 1
            self._trouble = outcome.reason
            self._last_failure = now
            self._not_before = now + self._backoff(outcome)
            self._max_batch_spans = max(1, min(FIRST_BATCH_SPANS, len(piece) // 2))
            again = []
            for entry, _, size in piece:
                if uncertain:
                    entry.tries += 1
                    entry.strikes += self._streak == 1
                    if entry.tries >= TRIES and size > SUSPICIOUS_BYTES:
                        self.queue.lighten(entry)
                if entry.strikes >= TRIES:
                    self.queue.lose(entry)
                else:
                    again.append(entry)
            self.queue.put_back(again, at_the_end=uncertain and self._streak > 1)

    def _backoff(self, outcome: Outcome) -> float:
        first, longest = BACKOFF_SECONDS
        if outcome.fate is Fate.UNUSABLE:
            longest = UNUSABLE_BACKOFF_SECONDS
        pause: float = min(longest, first * 2 ** min(self._streak - 1, 16)) * random.uniform(0.8, 1.2)  # noqa: S311
        return max(pause, min(outcome.after or 0.0, LONGEST_WAIT_SECONDS))

    def _lose(self, entries: list[Entry], reason: str) -> None:
        with self._lock:
            for entry in entries:
                self.queue.lose(entry)
            self._trouble = reason

    # ------------------------------------------------------------------ the log

    def _report(self, now: float, *, now_or_never: bool = False) -> str | None:
        """With the lock held: what is to be logged, at most once an interval."""
        shed = self.queue.shed
        if now < self._next_report and not now_or_never:
            return None
        new = shed - self._reported
        if not new and (not self._trouble or now_or_never):
            return None
        parts = []
        if new["content"]:
            parts.append(f"{new['content']} without their content ({new['content_bytes']} bytes)")
        if new["spans"]:
            parts.append(f"{new['spans']} lost")
        if not parts:
            parts.append(f"{self.queue.spans} wait")
        trouble = f"; last: {self._trouble}" if self._trouble else ""
        self._reported = shed.copy()
        self._trouble = ""
        self._next_report = now + self._report_seconds
        return f"otel-gym: spans to {self.name}: {', '.join(parts)}{trouble}; the records are not affected"


def _log(report: str | None) -> None:
    if report is not None:
        logger.warning("%s", report)
