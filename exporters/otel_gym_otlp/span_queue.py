"""Spans that wait for their destination, bounded in bytes and in number.

When room runs out, content goes first, the largest first, and spans go last, the oldest first: a backend that comes
back after an hour shall see what is going on now. Not locked: whoever has it holds a lock.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Iterable

from otel_gym_otlp.copies import Content, LightSpan, size
from otel_gym_otlp.delivery import Delivery


class Entry:
    """A span on its way to one destination.

    Attributes:
        content: what of it is payload and may leave to this destination; None when there is none, or no more.
        shed_bytes: how much content was left out for want of room.
        memory: what it takes, in bytes.
        tries: how often it was sent and nobody knows what became of it.
        strikes: how many of these were the first failure after a success, and so perhaps its own fault.
        waits: it is in the queue, not being sent.
        settled: it is sent, or lost.
        delivery: is told of that; None: nobody is.
    """

    __slots__ = (
        "content",
        "content_bytes",
        "delivery",
        "memory",
        "settled",
        "shed_bytes",
        "span",
        "strikes",
        "tries",
        "waits",
    )

    def __init__(self, span: LightSpan, content: Content | None, delivery: Delivery | None = None) -> None:
        self.span = span
        self.delivery = delivery
        self.content = content or None
        self.content_bytes = size(content) if content else 0
        self.memory = span.size + self.content_bytes
        self.shed_bytes = 0
        self.tries = 0
        self.strikes = 0
        self.waits = False
        self.settled = False


class SpanQueue:
    """First in, first out; what is being sent counts until it is settled.

    Args:
        max_bytes: of memory, for all entries.
        max_spans: how many entries.

    Attributes:
        bytes, spans: of all that was put in and is not settled.
        shed: `content` (spans that lost it), `content_bytes`, `spans` (lost whole).
    """

    def __init__(self, max_bytes: int, max_spans: int) -> None:
        self.max_bytes = max_bytes
        self.max_spans = max_spans
        self.bytes = 0
        self.spans = 0
        self.shed: Counter[str] = Counter()
        self._waiting: deque[Entry] = deque()
        self._largest: list[tuple[int, int, Entry]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        """How many wait, without those that are being sent."""
        return len(self._waiting)

    def put(self, entry: Entry) -> None:
        """Take one in, and let go what there is no room for."""
        self.bytes += entry.memory
        self.spans += 1
        self._waiting.append(entry)
        self._wait(entry)
        self._make_room()

    def take(self, max_spans: int, max_bytes: int) -> list[Entry]:
        """The next ones to send: one at least, when there is any."""
        taken: list[Entry] = []
        total = 0
        while self._waiting and len(taken) < max_spans:
            total += self._waiting[0].memory
            if taken and total > max_bytes:
                break
            entry = self._waiting.popleft()
            entry.waits = False
            taken.append(entry)
        return taken

    def put_back(self, entries: Iterable[Entry], *, at_the_end: bool = False) -> None:
        """They could not be sent now; the order stays, unless others shall get their turn first."""
        entries = list(entries)
        for entry in entries:
            self._wait(entry)
        if at_the_end:
            self._waiting.extend(entries)
        else:
            self._waiting.extendleft(reversed(entries))
        self._make_room()

    def settle(self, entry: Entry, *, arrived: bool = True) -> None:
        """It was taken, and is sent, or lost: its memory is free."""
        entry.settled = True
        if entry.delivery is not None:
            entry.delivery.settled(arrived)
        self.bytes -= entry.memory
        self.spans -= 1
        entry.content = None  # the heap may keep the entry for a while

    def lose(self, entry: Entry) -> None:
        """It was taken, and will not arrive."""
        if not entry.settled:
            self.settle(entry, arrived=False)
            self.shed["spans"] += 1

    def lighten(self, entry: Entry) -> None:
        """Leave the content of one out: the span says so, and its memory is free."""
        if entry.content is None:
            return
        entry.content = None
        entry.shed_bytes = entry.content_bytes
        entry.memory -= entry.content_bytes
        self.bytes -= entry.content_bytes
        self.shed["content"] += 1
        self.shed["content_bytes"] += entry.content_bytes

    def _wait(self, entry: Entry) -> None:
        entry.waits = True
        if entry.content is not None:
            if len(self._largest) > 2 * len(self._waiting) + 64:  # mostly of entries that are gone
                self._largest = [item for item in self._largest if item[2].waits and item[2].content is not None]
                heapq.heapify(self._largest)
            heapq.heappush(self._largest, (-entry.content_bytes, next(self._order), entry))

    def _make_room(self) -> None:
        while self.bytes > self.max_bytes and self._largest:
            entry = heapq.heappop(self._largest)[2]
            if entry.waits:
                self.lighten(entry)
        while self._waiting and (self.bytes > self.max_bytes or self.spans > self.max_spans):
            entry = self._waiting.popleft()
            entry.waits = False
            self.lose(entry)
