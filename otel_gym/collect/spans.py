"""The spans of a rollout: its root with the reward, and below it what its agent observed, all under derived ids.

Model calls are not here: the model server has sent theirs, below the same root. Nothing that was sent or came is in a
span. Source: the trace specification, "Rollout, tool and score spans".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from pydantic import ValidationError

from otel_gym import semconv
from otel_gym._version import __version__
from otel_gym.rollouts.attachment import CAPTURE_KEY
from otel_gym.rollouts.ids import ATTEMPT_INDEX_KEY, ROLLOUT_INDEX_KEY, TASK_INDEX_KEY
from otel_gym.rollouts.observations import (
    OBSERVATIONS_KEY,
    AgentInvocation,
    AgentObservations,
    ContextCompaction,
    ToolCallObservation,
)
from otel_gym.rollouts.references import ModelCallRef
from otel_gym.trace_ids import call_span_id, observed_span_id, rollout_trace

REWARD: Final = "reward"

_SCOPE: Final = InstrumentationScope("otel_gym.collect", __version__)
_RESOURCE: Final = Resource({})
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_LONGEST_LIST: Final = 128
_UNKNOWN: Final = "unknown"


class Times(NamedTuple):
    """From, to, in nanoseconds since the epoch."""

    start: int
    end: int

    def around(self, other: Times) -> Times:
        """Both."""
        return Times(min(self.start, other.start), max(self.end, other.end))

    def lasting(self) -> Times:
        """A nanosecond at least: Jaeger doubts a span without any duration, and one that outlasts its parent."""
        return Times(self.start, max(self.start + 1, self.end))


@dataclass(frozen=True, slots=True)
class Rollout:
    """What is told of one rollout.

    Attributes:
        run_id: seed of the ids.
        rollout_id: its id, the attempt included.
        row: as it was posted.
        result: its row as written, with what is attached.
        failure: code of why there is no result; None where there is.
        times: from the first post to the last answer.
    """

    run_id: str
    rollout_id: str
    row: Mapping[str, Any]
    result: Mapping[str, Any]
    failure: str | None
    times: Times
    calls: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        capture = self.result.get(CAPTURE_KEY)
        for call in capture["calls"] if isinstance(capture, dict) else ():
            if isinstance(call.get("model_call_id"), str):
                self.calls[call["model_call_id"]] = call

    def context(self, *names: str) -> SpanContext:
        """Of its root, or of what has these names in it."""
        trace_id, root = rollout_trace(self.run_id, self.rollout_id)
        span_id = observed_span_id(self.run_id, self.rollout_id, *names) if names else root
        return SpanContext(trace_id, span_id, is_remote=False, trace_flags=_SAMPLED)

    def calls_of(self, references: Iterable[ModelCallRef]) -> list[Mapping[str, Any]]:
        """The captured calls that are referred to by their ids."""
        return [self.calls[ref.model_call_id] for ref in references if ref.model_call_id in self.calls]


def rollout_spans(rollout: Rollout) -> list[ReadableSpan]:
    """All of them, the root first; those of observations only where these are what their schema says."""
    observed = _observations(rollout.result)
    spans = [_root(rollout, observed)]
    if observed is not None:
        spans += _observed(rollout, observed)
    return spans


def _observations(result: Mapping[str, Any]) -> AgentObservations | None:
    try:
        reported = result.get(OBSERVATIONS_KEY)
        return None if reported is None else AgentObservations.model_validate(reported)
    except ValidationError:  # the attachment has said so
        return None


def _root(rollout: Rollout, observed: AgentObservations | None) -> ReadableSpan:
    row = rollout.row
    reference = row.get("agent_ref")
    name = reference.get("name") if isinstance(reference, Mapping) else None
    agent = name if isinstance(name, str) and name else None if observed is None else observed.source
    reward = rollout.result.get(REWARD)
    events = []
    if isinstance(reward, (int, float)) and not isinstance(reward, bool) and math.isfinite(reward):
        scored: dict[str, str | float] = {semconv.EVALUATION_NAME: REWARD, semconv.EVALUATION_SCORE: float(reward)}
        events.append(Event(semconv.EVALUATION_RESULT, scored, timestamp=rollout.times.end))
    attributes = {
        semconv.ROLLOUT_TASK_INDEX: row.get(TASK_INDEX_KEY),
        semconv.ROLLOUT_ROLLOUT_INDEX: row.get(ROLLOUT_INDEX_KEY),
        semconv.ROLLOUT_ATTEMPT: row.get(ATTEMPT_INDEX_KEY) or None,
        semconv.AGENT_NAME: agent,
    }
    return _span(
        rollout, (), None, semconv.INVOKE_AGENT, agent, rollout.times, attributes, rollout.failure, events=events
    )


def _observed(rollout: Rollout, observed: AgentObservations) -> list[ReadableSpan]:
    invocations = {each.invocation_id: each for each in observed.invocations}
    own = {each: _times_of_calls(rollout.calls_of(invocations[each].model_calls)) for each in invocations}
    tools, compactions = [], []
    for number, record in enumerate(observed.records):
        if isinstance(record, ToolCallObservation):
            at, reported = _tool_times(rollout, record, invocations.get(record.invocation_id))
            _widen(own, record.invocation_id, at := at.lasting())
            tools.append((number, record, at, reported))
        elif isinstance(record, ContextCompaction):
            at, reported = _compaction_times(rollout, record)
            _widen(own, record.invocation_id, at := at.lasting())
            compactions.append((number, record, at, reported))
    _widen_parents(own, invocations)
    parents = {each: rollout.context("invocation", each) for each in invocations}
    spans = [_invocation(rollout, each, own[each.invocation_id], parents) for each in observed.invocations]
    spans += [_tool(rollout, each, parents.get(each[1].invocation_id)) for each in tools]
    spans += [_compaction(rollout, each, parents.get(each[1].invocation_id)) for each in compactions]
    return spans


def _invocation(
    rollout: Rollout, record: AgentInvocation, at: Times | None, contexts: Mapping[str, SpanContext]
) -> ReadableSpan:
    parent = contexts.get(record.parent_invocation_id or "")
    calls = rollout.calls_of(record.model_calls)[:_LONGEST_LIST]
    trace_id = rollout.context().trace_id
    spans = [call_span_id(call["model_call_id"]) for call in calls]
    links = [Link(SpanContext(trace_id, span, is_remote=True, trace_flags=_SAMPLED)) for span in spans]
    attributes = {semconv.AGENT_ID: record.invocation_id, **_reported(record.status, reported=False)}
    names = ("invocation", record.invocation_id)
    at = rollout.times if at is None else at
    return _span(rollout, names, parent, semconv.INVOKE_AGENT, None, at, attributes, record.error_type, links=links)


def _tool(
    rollout: Rollout, found: tuple[int, ToolCallObservation, Times, bool], parent: SpanContext | None
) -> ReadableSpan:
    number, record, at, reported = found
    attributes = {
        semconv.TOOL_NAME: record.tool_name,
        semconv.TOOL_CALL_ID: record.tool_call_id,
        **_reported(record.status, reported=reported),
    }
    names = ("tool_call", record.invocation_id, record.tool_call_id, str(number))
    return _span(rollout, names, parent, semconv.EXECUTE_TOOL, record.tool_name, at, attributes, record.error_type)


def _compaction(
    rollout: Rollout, found: tuple[int, ContextCompaction, Times, bool], parent: SpanContext | None
) -> ReadableSpan:
    number, record, at, reported = found
    attributes = {
        semconv.COMPACTION_TRIGGER: record.trigger,
        semconv.COMPACTION_OUTCOME: record.outcome,
        semconv.COMPACTION_TOKENS_BEFORE: record.tokens_before,
        semconv.COMPACTION_TOKENS_AFTER: record.tokens_after,
        **_reported(None, reported=reported),
    }
    names = ("context_compaction", record.invocation_id, str(number))
    return _span(rollout, names, parent, semconv.COMPACT_CONTEXT, None, at, attributes, None)


def _reported(status: str | None, *, reported: bool) -> dict[str, Any]:
    return {
        semconv.OBSERVED_STATUS: None if status == _UNKNOWN else status,
        semconv.OBSERVED_TIMES: "reported" if reported else "derived",
    }


def _span(
    rollout: Rollout,
    names: tuple[str, ...],
    parent: SpanContext | None,
    operation: str,
    of: str | None,
    at: Times,
    attributes: Mapping[str, Any],
    error: str | None,
    *,
    events: Sequence[Event] = (),
    links: Sequence[Link] = (),
) -> ReadableSpan:
    known = {
        semconv.ROLLOUT_ID: rollout.rollout_id,
        semconv.OPERATION_NAME: operation,
        **attributes,
        semconv.ERROR_TYPE: error,
    }
    return ReadableSpan(
        f"{operation} {of}"[: semconv.LONGEST_SEARCHED] if of else operation,
        context=rollout.context(*names),
        parent=parent if parent is not None else rollout.context() if names else None,
        resource=_RESOURCE,
        attributes={
            name: value[: semconv.LONGEST_SEARCHED] if isinstance(value, str) else value
            for name, value in known.items()
            if value is not None
        },
        events=events,
        links=links,
        kind=SpanKind.INTERNAL if names else SpanKind.CLIENT,
        instrumentation_scope=_SCOPE,
        status=Status(StatusCode.UNSET) if error is None else Status(StatusCode.ERROR, error),
        start_time=at.start,
        end_time=at.lasting().end,
    )


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _times_of_calls(calls: Iterable[Mapping[str, Any]]) -> Times | None:
    found: Times | None = None
    for call in calls:
        start, end = call.get("started_at"), call.get("completed_at")
        if isinstance(start, (int, float)) and isinstance(end, (int, float)):
            at = Times(_ns(start), _ns(end))
            found = at if found is None else found.around(at)
    return found


def _tool_times(
    rollout: Rollout, record: ToolCallObservation, invocation: AgentInvocation | None
) -> tuple[Times, bool]:
    """When a tool ran, and whether the agent says so; else it began when the call that asked for it had ended."""
    took = round((record.duration_ms or 0) * 1e6)
    if record.started_at is not None:
        start = _ns(record.started_at)
        return Times(start, start + took if record.completed_at is None else _ns(record.completed_at)), True
    if record.completed_at is not None:
        end = _ns(record.completed_at)
        return Times(end - took, end), True
    calls = rollout.calls_of(invocation.model_calls) if invocation is not None else []
    asked = [call for call in calls if any(tool["call_id"] == record.tool_call_id for tool in call["tool_calls"])]
    at = _times_of_calls(asked[:1]) or _times_of_calls(calls) or rollout.times
    start = at.end if asked else at.start
    return Times(start, start + took), False


def _compaction_times(rollout: Rollout, record: ContextCompaction) -> tuple[Times, bool]:
    """From its own calls; else the moment that is reported, else that between the calls around it."""
    if (at := _times_of_calls(rollout.calls_of(record.model_calls))) is not None:
        return at, False
    if record.observed_at is not None:
        return Times(_ns(record.observed_at), _ns(record.observed_at)), True
    for reference, last in ((record.before_model_call, True), (record.after_model_call, False)):
        at = _times_of_calls(rollout.calls_of([reference] if reference is not None else []))
        if at is not None:
            moment = at.end if last else at.start
            return Times(moment, moment), False
    return Times(rollout.times.start, rollout.times.start), False


def _widen(own: dict[str, Times | None], invocation_id: str, at: Times) -> None:
    if invocation_id in own:
        before = own[invocation_id]
        own[invocation_id] = at if before is None else before.around(at)


def _widen_parents(own: dict[str, Times | None], invocations: Mapping[str, AgentInvocation]) -> None:
    """An invocation lasts at least as long as those below it; what was observed is a forest."""
    for start, at in list(own.items()):
        parent = invocations[start].parent_invocation_id
        while at is not None and parent is not None and parent in invocations:
            _widen(own, parent, at)
            parent = invocations[parent].parent_invocation_id
