"""From finished rollouts to the mirror, where spans go anywhere: a root for each, and what was observed in it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

from opentelemetry.sdk.trace.sampling import Decision

from otel_gym.collect.agent import Failure
from otel_gym.collect.result_row import ERROR_KEY, ResultRow
from otel_gym.collect.spans import Rollout, Times, rollout_spans
from otel_gym.collect.unsent import Attempt, Unsent
from otel_gym.evidence_spans import standard_sampler
from otel_gym.mirroring import has_destination
from otel_gym.rollouts.attachment import read_capture
from otel_gym.rollouts.ids import maybe_rollout_id_from_run_body
from otel_gym.semconv import INVOKE_AGENT
from otel_gym.settings import Settings
from otel_gym.trace_ids import rollout_trace
from otel_gym_otlp.delivery import Delivery

if TYPE_CHECKING:
    from otel_gym_otlp.mirror import Mirror

SERVICE_NAME = "otel-gym collect"
FLUSH_S = 10.0
INTERRUPTED = "interrupted"
"""Why an attempt has no result whose collector was killed, or did not wait for it."""

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
        self._unsent: Unsent | None = None

    @classmethod
    def of(cls, settings: Settings, output: Path) -> Tracing | None:
        """By settings and standard variables; None where spans would go nowhere.

        Whoever collects into one output is one instance of the service, so that a span that is sent again is the same.

        Raises:
            SettingsError: the run id cannot be made or read.
        """
        if not has_destination(settings):
            return None
        from otel_gym_otlp.mirror import Mirror  # a collection without a mirror does not pay for one

        destinations = settings.mirror_destinations
        run_id = settings.trace_run_id()
        mirror = Mirror(
            None if destinations is None else [one.model_dump() for one in destinations],
            unasked=settings.mirror is True,
            queue_bytes=settings.mirror_queue_bytes,
            redact_patterns=settings.redact_patterns,
            default_service_name=SERVICE_NAME,
            instance_id=str(uuid5(NAMESPACE_URL, f"otel-gym/{run_id}/{output.resolve()}")),
        )
        return cls(run_id, mirror)

    def headers(self, row: dict[str, Any]) -> dict[str, str]:
        """The trace context of the row's root, for agents that hand it on."""
        rollout_id = maybe_rollout_id_from_run_body(row)
        if rollout_id is None:
            return {}
        trace_id, span_id = rollout_trace(self._run_id, rollout_id)
        return {"traceparent": f"00-{trace_id:032x}-{span_id:016x}-{self._sampled(trace_id):02x}"}

    def resume(self, output: Path, rows: Iterable[Mapping[str, Any]], capture_dirs: Sequence[Path]) -> None:
        """Send what a backend may lack of an earlier collection, which was killed or could not reach it."""
        self._unsent = Unsent(output)
        left = self._unsent.left()
        if not any(attempt.has_row for attempt in left.values()):
            rows = ()
        for row in rows:
            rollout_id = _id_of(row)
            attempt = left.get(rollout_id or "")
            if rollout_id is None or attempt is None or not attempt.has_row or _failure_of(row) != attempt.failure:
                continue
            del left[rollout_id]
            self._tell_again(rollout_id, attempt, row, attempt.ended_ns or attempt.began_ns)
        for rollout_id, attempt in left.items():
            if attempt.has_row or attempt.ended_ns is None:
                ended_ns = attempt.ended_ns or _last_call_ns(rollout_id, capture_dirs) or attempt.began_ns
                self._tell_again(rollout_id, replace(attempt, failure=INTERRUPTED), {}, ended_ns)
            else:
                self._tell_again(rollout_id, attempt, {}, attempt.ended_ns)

    def begun(self, row: dict[str, Any], at_ns: int) -> None:
        """Remember it: its model calls will be below a root that is not there yet."""
        rollout_id = maybe_rollout_id_from_run_body(row)
        if rollout_id is not None and self._unsent is not None:
            self._unsent.begun(rollout_id, row, at_ns)

    def ending(self, row: dict[str, Any], result: ResultRow, began_ns: int, ended_ns: int) -> None:
        """Remember its times, before there is a row: whoever finds the row finds them."""
        rollout_id = maybe_rollout_id_from_run_body(row)
        if rollout_id is not None and self._unsent is not None:
            self._unsent.ended(rollout_id, (began_ns, ended_ns), _code(result.failure), has_row=True)

    def ended(self, row: dict[str, Any], result: ResultRow, began_ns: int, ended_ns: int) -> None:
        """Hand the spans of a rollout over."""
        rollout_id = maybe_rollout_id_from_run_body(row)
        if rollout_id is not None:
            times = Times(began_ns, ended_ns)
            self._tell(Rollout(self._run_id, rollout_id, row, result.result, _code(result.failure), times))

    def abandoned(self, row: dict[str, Any], failure: Failure, began_ns: int, ended_ns: int) -> None:
        """An attempt that failed has a root too: its model calls are below it."""
        rollout_id = maybe_rollout_id_from_run_body(row)
        if rollout_id is not None:
            if self._unsent is not None:
                self._unsent.ended(rollout_id, (began_ns, ended_ns), failure.code, has_row=False)
            self._tell(Rollout(self._run_id, rollout_id, row, {}, failure.code, Times(began_ns, ended_ns)))

    def _tell_again(self, rollout_id: str, attempt: Attempt, result: Mapping[str, Any], ended_ns: int) -> None:
        times = Times(attempt.began_ns, max(attempt.began_ns, ended_ns))
        self._tell(Rollout(self._run_id, rollout_id, attempt.row, result, attempt.failure, times))

    def _tell(self, rollout: Rollout) -> None:
        """Whatever is wrong with a span, the collection does not feel it."""
        delivery = Delivery(lambda: self._arrived(rollout.rollout_id))
        try:
            if self._sampled(rollout.context().trace_id):
                for span in rollout_spans(rollout):
                    self._mirror.offer(span, delivery=delivery)
        except Exception as error:  # noqa: BLE001 - see above
            _log.error("rollout %s: its spans cannot be made: %s", rollout.rollout_id, type(error).__name__)
        delivery.complete()

    def _arrived(self, rollout_id: str) -> None:
        if self._unsent is not None:
            self._unsent.arrived(rollout_id)

    def close(self) -> None:
        """Send what waits; what does not arrive now is sent by a collection that resumes this one."""
        self._mirror.close(FLUSH_S)
        if self._unsent is not None:
            self._unsent.close()

    def _sampled(self, trace_id: int) -> bool:
        return self._sampler.should_sample(None, trace_id, INVOKE_AGENT).decision is Decision.RECORD_AND_SAMPLE


def _code(failure: Failure | None) -> str | None:
    return None if failure is None else failure.code


def _id_of(row: Mapping[str, Any]) -> str | None:
    try:
        return maybe_rollout_id_from_run_body(row)
    except ValueError:
        return None


def _failure_of(row: Mapping[str, Any]) -> str | None:
    error = row.get(ERROR_KEY)
    return error.get("code") if isinstance(error, Mapping) else None


def _last_call_ns(rollout_id: str, capture_dirs: Sequence[Path]) -> int | None:
    """When the last captured call of an attempt had ended, in nanoseconds since the epoch; None without any."""
    ends = [call["completed_at"] for call in read_capture(rollout_id, capture_dirs)["calls"]]
    known = [end for end in ends if isinstance(end, (int, float))]
    return round(max(known) * 1e9) if known else None
