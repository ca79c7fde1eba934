"""What others than its record are told of a call: the metrics, and the mirror."""

from __future__ import annotations

import logging
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from otel_gym.arrival import Arrival
from otel_gym.calls import Call
from otel_gym.conversations import Conversations
from otel_gym.evidence_spans import EvidenceSpans
from otel_gym.metrics import instruments
from otel_gym.mirroring import Mirroring
from otel_gym.semconv import AttributeValue
from otel_gym.span_facts import span_facts
from otel_gym_jsonl import attributes as evidence_names

logger = logging.getLogger(__name__)


class Telling:
    """What others than its record are told of one call: metrics and the mirror. Lives on writer threads."""

    def __init__(
        self,
        call: Call,
        arrival: Arrival,
        spans: EvidenceSpans,
        mirroring: Mirroring | None,
        provider_name: str | None,
        conversations: Conversations,
    ) -> None:
        self.call = call
        self._span: ReadableSpan | None = None
        self._arrival = arrival
        self._spans = spans
        self._mirroring = mirroring if call.ancestry is not None and call.ancestry.sampled else None
        self._provider_name = provider_name
        self._conversations = conversations
        self._facts: dict[str, AttributeValue] = {}

    def end_span(self, evidence: dict[str, Any]) -> ReadableSpan:
        """The ended span of the call, with this evidence and all that is told beside it."""
        span = self._span = self._spans.end(self.call, evidence, self._learn(evidence))
        return span

    def _learn(self, evidence: dict[str, Any]) -> dict[str, AttributeValue]:
        """A fault of ours costs what is told, never the record."""
        call = self.call
        try:
            self._facts = span_facts(call, evidence, self._arrival, self._provider_name, self._conversations)
        except Exception:
            logger.exception("otel-gym: the span of a call of rollout %r says little", call.rollout_id)
        finally:
            call.request_object = call.response_object = None
        return self._facts

    def written(self, line: bytes | None) -> None:
        """The client was let go: the record is on disk, as this line, or (None) it is lost."""
        call = self.call
        span, self._span = self._span, None
        if span is None:  # given up before its turn came: what is known without reading its bodies
            span = self.end_span({} if call.status is None else {evidence_names.STATUS_CODE: call.status})
        if (measured := instruments()) is not None:
            first = call.latency_ttft_ms
            first_token = None if first is None or not call.is_stream else first / 1000
            measured.call(self._facts, call.latency_ms / 1000, first_token, self._arrival.server_facts())
            if line is None:
                measured.lost()
            else:
                measured.written(len(line))
        if self._mirroring is not None:
            self._mirroring.offer(call, span, self._facts, line)
