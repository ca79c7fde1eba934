"""The way to one destination: a queue, a thread, a sender. Whatever the backend does, only this thread waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Any

from otel_gym_otlp.copies import Content, LightSpan
from otel_gym_otlp.delivery import Delivery
from otel_gym_otlp.outcome import Fate, Outcome, Sender
from otel_gym_otlp.pace import Pace
from otel_gym_otlp.redaction import NotRedactedError
from otel_gym_otlp.rendering import Rendering
from otel_gym_otlp.span_queue import Entry, SpanQueue
from otel_gym_otlp.stock import THREAD_NAME
from otel_gym_otlp.troubles import Troubles

logger = logging.getLogger(__name__)

SUSPICIOUS_BYTES = 256 * 1024
TRIES = 4
HELD_BYTES = 16 * 1024  # four spans, or one with content: handing the interpreter over costs as much as one or two
REFUSALS = 8  # so many spans refused without a success between them: the receiver gets a pause
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
        self._unflushed = False  # the sender has taken spans, and may keep them
        self._taken_at = 0.0  # the first of these
        self._flush_took = 0.0
        self._since = 0.0  # when the oldest that waits came
        self._refusals = 0
        self._pace = Pace()
        self._troubles = Troubles(self.name, self._report_seconds)

    # ------------------------------------------------------------------ any thread

    def wanted(self) -> bool:
        """Whether spans would go anywhere now."""
        return self._sender.wanted()

    def offer(self, span: LightSpan, content: Content, delivery: Delivery | None = None) -> None:
        """Queue a copy. Never waits for the backend."""
        entry = Entry(span, content if self.content else None, delivery)
        if delivery is not None:
            delivery.offered()
        with self._lock:
            if not len(self.queue):
                self._since = time.monotonic()
            self.queue.put(entry)
            self._closing = False
            self._ensure_thread()
            if self._idle or len(self.queue) == self._pace.batch_spans:
                self._wake.notify()

    def prepare(self) -> None:
        """Load what the sender needs, before the first span comes."""
        self._sender.load()

    def hurry(self, on: bool) -> None:
        """Send without lingering, and again without the whole pause, as long as somebody waits for it."""
        with self._lock:
            self._hurried += 1 if on else -1
            self._wake.notify()

    def wait_until_empty(self, timeout: float) -> bool:
        """Returns whether everything is sent, or lost. Somebody hurries meanwhile."""
        with self._lock:
            return self._empty.wait_for(lambda: not self.queue.spans and not self._unflushed, timeout)

    def tell(self) -> None:
        """Log what was not said yet, before its time: the process may end without another word."""
        with self._lock:
            report = self._troubles.say(self.queue.shed, self.queue.spans, time.monotonic(), last_words=True)
        _log(report)

    def close(self, timeout: float) -> None:
        """Count as lost what is left, and let the thread end; it gets so long. A later `offer` starts anew."""
        with self._lock:
            self._lose_waiting()
            self._closing = True
            self._wake.notify()
            thread = self._thread
            if self.queue.spans:
                self._troubles.last = f"{self.queue.spans} were on their way when the mirror was closed"
            report = self._troubles.say(self.queue.shed, self.queue.spans, time.monotonic(), last_words=True)
        _log(report)
        if thread is not None:
            thread.join(timeout)

    def abandon(self) -> None:
        """In a forked child: the parent's thread is not here, its lock may be held, its spans are its own business."""
        self._start()
        self._rendering.abandon()
        self._sender.abandon()

    def _ensure_thread(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
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
                self._lose([entry for entry in batch if not entry.waits], "a fault of the mirror")

    def _next(self) -> list[Entry] | None:
        """Wait for the next entries to send; None when the thread shall end."""
        while True:
            report = None
            with self._lock:
                now = time.monotonic()
                flush_in = self._flush_in(now)
                to_flush = flush_in is not None and flush_in <= 0
                if not to_flush:
                    if not self.queue.spans:
                        self._empty.notify_all()
                    report = self._troubles.say(self.queue.shed, self.queue.spans, now)
                if not to_flush and report is None:
                    if self._closing:
                        if self._ended():
                            return None
                    elif waiting := len(self.queue):
                        pause = self._pace.resume_at(waiting, self._since, hurried=self._hurried > 0) - now
                        if pause <= 0:
                            return self.queue.take(
                                self._pace.batch_spans, min(self._pace.batch_bytes, self._max_bytes // 4)
                            )
                        self._wake.wait(_first(pause, flush_in))
                    else:
                        self._idle = True
                        self._wake.wait(_first(self._troubles.due_in(self.queue.shed, now), flush_in))
                        self._idle = False
            if to_flush:
                self._flush()
            _log(report)

    def _flush_in(self, now: float) -> float | None:
        """Seconds until the sender is to send on what it has taken; None while it keeps nothing. With the lock held."""
        if not self._unflushed:
            return None
        if self._hurried and not self.queue.spans:
            return 0.0
        after = self._sender.flush_after_s
        # No more than half of the time goes into waiting for a processor whose backend is slow or dead.
        return None if after is None else self._taken_at + max(after, self._flush_took) - now

    def _flush(self) -> None:
        began = time.monotonic()
        self._sender.flush()
        self._flush_took = time.monotonic() - began
        self._unflushed = False

    def _ended(self) -> bool:
        """With the lock held: give everything back, unless somebody comes meanwhile."""
        self._lose_waiting()
        self._lock.release()
        try:
            self._sender.close()
        finally:
            self._lock.acquire()
            self._unflushed = False
        if self._closing:
            self._thread = None
        return self._closing

    def _lose_waiting(self) -> None:
        for entry in self.queue.take(len(self.queue), self.queue.bytes):
            self.queue.lose(entry)

    def _deliver(self, batch: list[Entry]) -> None:
        self._sender.prepare()
        if not self._sender.wanted():
            self._lose(batch, "the exporter is missing")
            return
        packed = []
        held = 0
        for entry in batch:
            item = self._pack(entry)
            if item is not None:
                packed.append(item)
            held += entry.memory
            if held >= HELD_BYTES:  # the server's threads first: this one holds the interpreter for a tenth of a ms
                held = 0
                time.sleep(0)
        pieces = deque(self._cut(packed))
        while pieces:
            piece = pieces.popleft()
            began = time.monotonic()
            outcome = self._sender.send([item for _, item, _ in piece])
            if outcome.fate is Fate.SENT:
                self._delivered(piece, outcome, time.monotonic() - began)
                continue
            if outcome.fate in (Fate.TOO_LARGE, Fate.BAD):
                pieces.extendleft(reversed(self._smaller(piece, outcome)))
                if self._refusals < REFUSALS:
                    continue
                piece = []
            with self._lock:
                self.queue.put_back([entry for later in pieces for entry, _, _ in later])
                self._failed([(entry, size) for entry, _, size in piece], outcome)
            return

    def _pack(self, entry: Entry) -> _Packed | None:
        """The entry as it is sent: without content where that is too large; None when it cannot be sent at all."""
        most = self._pace.most_of_a_span(self._sender.max_span_bytes)
        try:
            while True:
                try:
                    attributes = self._rendering.attributes(entry, self._sender.limits())
                except NotRedactedError as exc:
                    with self._lock:
                        self.queue.lighten(entry)
                        self._troubles.last = str(exc)
                    continue
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
            if not pieces or total > self._pace.batch_bytes:
                pieces.append([])
                total = item[2]
            pieces[-1].append(item)
        return pieces

    def _delivered(self, piece: list[_Packed], outcome: Outcome, took: float) -> None:
        with self._lock:
            for entry, _, _ in piece:
                self.queue.settle(entry)
            if not self._unflushed:
                self._unflushed = True
                self._taken_at = time.monotonic()
            self.sent += len(piece) - outcome.rejected
            if outcome.rejected:
                self.queue.shed["spans"] += outcome.rejected
                self._troubles.last = outcome.reason
            self._refusals = 0
            self._pace.succeeded(len(piece), took)

    def _smaller(self, piece: list[_Packed], outcome: Outcome) -> list[list[_Packed]]:
        """What to try instead of a request that was not taken: halves, then the span without content, then nothing."""
        if outcome.fate is Fate.TOO_LARGE:
            self._pace.too_large(len(piece), sum(size for _, _, size in piece))
        if len(piece) > 1:
            middle = len(piece) // 2
            return [piece[:middle], piece[middle:]]
        entry = piece[0][0]
        if entry.content is not None:
            with self._lock:
                self.queue.lighten(entry)
            lighter = self._pack(entry)
            return [] if lighter is None else [[lighter]]
        self._refusals += 1
        self._lose([entry], outcome.reason)
        return []

    def _failed(self, piece: list[tuple[Entry, int]], outcome: Outcome) -> None:
        """With the lock held: again later; what may be the request's own fault goes to the end, and in the end away."""
        uncertain = outcome.fate is Fate.UNCERTAIN
        self._pace.failed(len(piece), outcome)
        self._troubles.last = outcome.reason
        self._refusals = 0
        again = []
        for entry, size in piece:
            if uncertain:
                entry.tries += 1
                entry.strikes += self._pace.streak == 1
                if entry.tries >= TRIES and size > SUSPICIOUS_BYTES:
                    self.queue.lighten(entry)
            if entry.strikes >= TRIES:
                self.queue.lose(entry)
            else:
                again.append(entry)
        self.queue.put_back(again, at_the_end=uncertain and self._pace.streak > 1)

    def _lose(self, entries: list[Entry], reason: str) -> None:
        with self._lock:
            for entry in entries:
                self.queue.lose(entry)
            self._troubles.last = reason


def _first(*waits: float | None) -> float | None:
    """The shortest of these waits; None: for ever."""
    return min((wait for wait in waits if wait is not None), default=None)


def _log(report: str | None) -> None:
    if report is not None:
        logger.warning("%s", report)
