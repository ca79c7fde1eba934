"""From finished rollouts to the mirror, where spans go anywhere: a root for each, and what was observed in it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace.sampling import Decision

from otel_gym.collect.agent import Failure
from otel_gym.collect.result_row import ResultRow
from otel_gym.collect.spans import Rollout, Times, rollout_spans
from otel_gym.evidence_spans import standard_sampler
from otel_gym.mirroring import has_destination
from otel_gym.rollouts.ids import maybe_rollout_id_from_run_body
from otel_gym.semconv import INVOKE_AGENT
from otel_gym.settings import Settings
from otel_gym.trace_ids import rollout_trace

if TYPE_CHECKING:
    from otel_gym_otlp.mirror import Mirror

SERVICE_NAME = "otel-gym collect"
FLUSH_S = 10.0

_log = logging.getLogger(__name__)


class Tracing:
    """The witness of a collection that tells a tracing backend.

    Args:
        run_id: seed of the ids, that of the capture directory.
        mirror: where spans go.
    """

    def __init__(self, run_id: str, mirror: Mirror) -> None:
        self._run_id = run_id
        self._mirror = mirror
        self._sampler = standard_sampler()

    @classmethod
    def of(cls, settings: Settings) -> Tracing | None:
        """By settings and standard variables; None where spans would go nowhere.

        Raises:
            SettingsError: the run id cannot be made or read.
        """
        if not has_destination(settings):
            return None
        from otel_gym_otlp.mirror import Mirror  # a collection without a mirror does not pay for one

        destinations = settings.mirror_destinations
        mirror = Mirror(
            None if destinations is None else [one.model_dump() for one in destinations],
            unasked=settings.mirror is True,
            queue_bytes=settings.mirror_queue_bytes,
            redact_patterns=settings.redact_patterns,
            default_service_name=SERVICE_NAME,
        )
        return cls(settings.trace_run_id(), mirror)

    def headers(self, row: dict[str, Any]) -> dict[str, str]:
        """The trace context of the row's root, for agents that hand it on."""
        rollout_id = maybe_rollout_id_from_run_body(row)
        if rollout_id is None:
            return {}
        trace_id, span_id = rollout_trace(self._run_id, rollout_id)
        return {"traceparent": f"00-{trace_id:032x}-{span_id:016x}-{self._sampled(trace_id):02x}"}

    def ended(self, row: dict[str, Any], result: ResultRow, began_ns: int, ended_ns: int) -> None:
        """Hand the spans of a rollout over."""
        rollout_id = maybe_rollout_id_from_run_body(row)
        if rollout_id is None:
            return
        failure = None if result.failure is None else result.failure.code
        self._tell(Rollout(self._run_id, rollout_id, row, result.result, failure, Times(began_ns, ended_ns)))

    def abandoned(self, row: dict[str, Any], failure: Failure, began_ns: int, ended_ns: int) -> None:
        """An attempt that failed has a root too: its model calls are below it."""
        rollout_id = maybe_rollout_id_from_run_body(row)
        if rollout_id is not None:
            self._tell(Rollout(self._run_id, rollout_id, row, {}, failure.code, Times(began_ns, ended_ns)))

    def _tell(self, rollout: Rollout) -> None:
        """Whatever is wrong with a span, the collection does not feel it."""
        try:
            if self._sampled(rollout.context().trace_id):
                for span in rollout_spans(rollout):
                    self._mirror.offer(span)
        except Exception as error:  # noqa: BLE001 - see above
            _log.error("rollout %s: its spans cannot be made: %s", rollout.rollout_id, type(error).__name__)

    def close(self) -> bool:
        """Send what waits; whether nothing is left."""
        return self._mirror.close(FLUSH_S)

    def _sampled(self, trace_id: int) -> bool:
        return self._sampler.should_sample(None, trace_id, INVOKE_AGENT).decision is Decision.RECORD_AND_SAMPLE
