"""What others than its record are told of a call: the metrics, and the mirror."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from sys import getsizeof
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan

from otel_gym.arrival import Arrival
from otel_gym.calls import Call
from otel_gym.conversations import Conversations
from otel_gym.evidence_spans import EvidenceSpans
from otel_gym.metrics import instruments
from otel_gym.mirroring import NOT_DURABLE, Mirroring, content, receipt
from otel_gym.semconv import AttributeValue
from otel_gym.span_facts import body_facts, chained_facts, span_facts
from otel_gym.teller import Teller
from otel_gym_jsonl import attributes as evidence_names
from otel_gym_otlp.receipt import Receipt

if TYPE_CHECKING:
    from otel_gym_otlp.copies import LightSpan

logger = logging.getLogger(__name__)

_SAYS_LITTLE = "otel-gym: the span of a call of rollout %r says little"

_BODIES = (
    evidence_names.REQUEST,
    evidence_names.RESPONSE,
    evidence_names.REQUEST_RAW,
    evidence_names.RESPONSE_RAW,
)

LIGHT_BYTES = 4096
"""What a call without its bodies takes in memory, about."""


class _Ended(NamedTuple):
    """What is kept of a call whose span has ended, and what it takes in memory, in bytes."""

    body_facts: Mapping[str, AttributeValue]
    status: int | None
    category: str | None
    copy: LightSpan | None
    evidence: Mapping[str, Any] | None
    size: int


class Telling:
    """What others than its record are told of one call: metrics and the mirror.

    Begun on a writer thread, where the bodies are read; told when nobody waits for it any more, by the teller.

    Attributes:
        size: what it takes in memory while it waits to be told, in bytes, about.
    """

    __slots__ = (
        "_arrival",
        "_conversations",
        "_ended",
        "_line_bytes",
        "_mirroring",
        "_provider_name",
        "_receipt",
        "_spans",
        "_teller",
        "call",
        "size",
    )

    def __init__(
        self,
        call: Call,
        arrival: Arrival,
        spans: EvidenceSpans,
        teller: Teller,
        mirroring: Mirroring | None,
        provider_name: str | None,
        conversations: Conversations,
    ) -> None:
        self.call = call
        self.size = LIGHT_BYTES
        self._arrival = arrival
        self._spans = spans
        self._teller = teller
        self._mirroring = mirroring if call.ancestry is not None and call.ancestry.sampled else None
        self._provider_name = provider_name
        self._conversations = conversations
        self._ended: list[_Ended] = []  # the first counts: a call may be given up while it is read
        self._receipt: Receipt | None = None
        self._line_bytes: int | None = None

    def end_span(self, evidence: dict[str, Any]) -> ReadableSpan:
        """The ended span of the call, with this evidence. Keeps what the bodies tell, and them, where wanted."""
        span = self._end(evidence)
        self.call.lighten()
        return span

    def _end(self, evidence: dict[str, Any], size: int = LIGHT_BYTES) -> ReadableSpan:
        call = self.call
        facts: dict[str, AttributeValue] = {}
        chained: Mapping[str, AttributeValue] = facts
        try:
            chained = facts = body_facts(call)
            chained = chained_facts(call, facts, self._arrival, self._conversations)
        except Exception:  # a fault of ours costs what is told, never the record
            logger.exception(_SAYS_LITTLE, call.rollout_id)
        span = self._spans.end(call, evidence, facts)
        copy = kept = None
        if (mirroring := self._mirroring) is not None:
            copy = mirroring.copy(span)
            if mirroring.mirror.wants_content():
                kept = evidence
                size += sum(getsizeof(evidence.get(name)) for name in _BODIES)
        status, category = evidence.get(evidence_names.STATUS_CODE), evidence.get(evidence_names.ERROR_CATEGORY)
        self._ended.append(_Ended(chained, status, category, copy, kept, size))
        return span

    def written(self, line: bytes | None) -> None:
        """The client was let go: the record is on disk, as this line, or (None) it is lost."""
        if not self._ended:  # given up before, or while, its bodies are read: what is known without them, which stay
            call = self.call
            size = sum(0 if body.too_large else body.size for body in (call.request, call.response))
            self._end({} if call.status is None else {evidence_names.STATUS_CODE: call.status}, LIGHT_BYTES + size)
        self.size = self._ended[0].size
        if line is not None:
            self._line_bytes = len(line)
            if self._mirroring is not None:
                self._receipt = receipt(self.call.rollout_id, line)
        self._teller.put(self)

    def tell(self) -> None:
        """Tell metrics and mirror. Called once, by the teller."""
        call, ended = self.call, self._ended[0]
        facts = self._facts(ended)
        if (measured := instruments()) is not None:
            first = call.latency_ttft_ms
            first_token = None if first is None or not call.is_stream else first / 1000
            measured.call(facts, call.latency_ms / 1000, first_token, self._arrival.server_facts())
            if self._line_bytes is None:
                measured.lost()
            else:
                measured.written(self._line_bytes)
        if self._mirroring is not None and ended.copy is not None:
            if ended.evidence is not None:
                facts.update(content(call, ended.evidence))
            self._mirroring.mirror.offer_copy(ended.copy, self._receipt or NOT_DURABLE, facts)

    def _facts(self, ended: _Ended) -> dict[str, AttributeValue]:
        facts: dict[str, AttributeValue] = {}
        try:
            facts = span_facts(
                self.call,
                ended.body_facts,
                ended.status,
                ended.category,
                self._arrival,
                self._provider_name,
            )
        except Exception:
            logger.exception(_SAYS_LITTLE, self.call.rollout_id)
        return facts
