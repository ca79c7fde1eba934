"""From captured calls and an agent's observations to `ng_trajectory`.

The record is made as plain dictionaries that share the requests and answers with the calls: they are the bulk, and are
never copied, not even to check the record. Source: "Agent observations → trajectory →
perf" of the rollout specification; every `ng_trajectory` of the conformance corpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from otel_gym.rollouts.ids import TASK_INDEX_KEY
from otel_gym.rollouts.joining import Call
from otel_gym.rollouts.observations import AgentInvocation, AgentObservations, ToolCallObservation
from otel_gym.rollouts.references import Evidence, Gap, once
from otel_gym.rollouts.trajectory import ResponseMetadata, TrajectoryRecord, TrajectoryToolCall
from otel_gym.rollouts.turns import turns_of

_TASK_KEYS = ("task_id", "problem_id", "instance_id", TASK_INDEX_KEY)
_METADATA = tuple(ResponseMetadata.model_fields)
_TOKENS = {
    "prompt_tokens": "tokens_in",
    "completion_tokens": "tokens_out",
    "reasoning_tokens": "tokens_reasoning",
    "total_tokens": "tokens_total",
    "cached_tokens": "cached_tokens",
}
_CONTENT = {
    "invocations": frozenset({"conversation"}),
    "turns": frozenset({"question", "answer", "reasoning_content"}),
    "model_calls": frozenset({"request", "response"}),
    "tool_calls": frozenset({"output"}),
}

Record = dict[str, Any]


def task_id_of(row: Mapping[str, Any]) -> str:
    """The task of a row: the first of `task_id`, `problem_id`, `instance_id` and the task index that is not null."""
    return next((str(row[key]) for key in _TASK_KEYS if row.get(key) is not None), "unknown")


class Checked(NamedTuple):
    """What the result has, where it has just been made of files and checked: it need not be checked again.

    Attributes:
        observations: joined; None where none were reported, or not such as could be joined.
    """

    observations: AgentObservations | None


def project(
    row: Mapping[str, Any], rollout_id: str, result: Mapping[str, Any], checked: Checked | None = None
) -> Record:
    """The trajectory of a result that has a capture, observations or a producer's trajectory.

    Args:
        row: what was dispatched.
        rollout_id: its id.
        result: what is attached so far.
        checked: where its capture was read and joined just now.

    Raises:
        pydantic.ValidationError: the captured calls do not make a trajectory (two of one id, a negative duration).
        AttributeError, TypeError: a call has a shape that no API has.
    """
    task_id = task_id_of(row)
    capture = result.get("ng_model_call_capture")
    capture = capture if isinstance(capture, dict) else {}
    found = capture.get("calls")
    calls = [call for call in found if isinstance(call, dict)] if isinstance(found, list) else []
    gaps: list[Gap] = []

    producer = _producer(result.get("ng_trajectory"), task_id, rollout_id, gaps)
    if checked is not None and checked.observations is not None:
        observations: AgentObservations | None = checked.observations
        gaps += checked.observations.gaps
    else:
        observations = _observations(result.get("ng_agent_observations"), gaps)
    gaps += _capture_gaps(capture.get("gaps"))
    invocations = _merged_invocations(producer, observations)
    if producer is not None:
        ordered = sorted(producer.turns, key=lambda turn: (turn.timestamp, turn.turn_no))
        turns = [_plain(turn, "turns") for turn in ordered]
    else:
        turns = turns_of(calls, invocations, task_id, rollout_id, result.get("resolved"))
    model_calls = _merged_calls(producer, calls)
    if not model_calls:
        gaps.append(Gap(code="model_calls_unavailable"))
    if not turns and producer is None:
        gaps.append(Gap(code="turns_unavailable"))
    if not any(invocation.conversation for invocation in invocations):
        gaps.append(Gap(code="conversation_unavailable"))
    record: Record = {
        "schema_version": "1.0",
        "task_id": task_id,
        "rollout_id": rollout_id,
        "invocations": [_plain(invocation, "invocations") for invocation in invocations],
        "turns": turns,
        "model_calls": model_calls,
        "tool_calls": [_plain(tool, "tool_calls") for tool in _merged_tools(producer, observations)],
        "gaps": [gap.model_dump() for gap in once(gaps)],
    }
    # All else has been validated when it was reported, or holds by the way it is made.
    if checked is None or producer is not None or not _each_is_one_call(calls):
        TrajectoryRecord.model_validate(
            {"task_id": task_id, "rollout_id": rollout_id, "invocations": invocations, "model_calls": model_calls}
        )
    return record


def _each_is_one_call(calls: list[Call]) -> bool:
    """Whether calls as read from a file keep what a trajectory asks for beyond that."""
    ids = [call_id for call in calls if (call_id := call["model_call_id"]) is not None]
    times = [took for call in calls for took in (call["latency_total_ms"], call["latency_ttft_ms"])]
    return len(set(ids)) == len(ids) and all(took is None or took >= 0 for took in times)


def _plain(model: Evidence, part: str) -> Record:
    """A model as a dictionary that shares the bulk with it."""
    content = _CONTENT[part]
    fields = model.model_dump(exclude=set(content))
    return {name: getattr(model, name) if name in content else fields[name] for name in type(model).model_fields}


def _producer(reported: Any, task_id: str, rollout_id: str, gaps: list[Gap]) -> TrajectoryRecord | None:
    if not isinstance(reported, dict):
        return None
    try:
        record = TrajectoryRecord.model_validate(reported)
    except ValidationError as exc:
        gaps.append(Gap(code="producer_trajectory_invalid", detail=type(exc).__name__))
        return None
    gaps += record.gaps
    ours = {"task_id": task_id, "rollout_id": rollout_id}
    differing = [name for name, value in ours.items() if getattr(record, name) != value]
    if differing:
        gaps.append(Gap(code="producer_trajectory_identity_mismatch", detail=",".join(differing)))
    turns = [turn.model_copy(update=ours) for turn in record.turns]
    return record.model_copy(update={**ours, "turns": turns})


def _observations(reported: Any, gaps: list[Gap]) -> AgentObservations | None:
    if reported is None:
        return None
    try:
        observations = AgentObservations.model_validate(reported)
    except ValidationError as exc:
        gaps.append(Gap(code="agent_observations_invalid", detail=type(exc).__name__))
        return None
    gaps += observations.gaps
    return observations


def _capture_gaps(reported: Any) -> Iterable[Gap]:
    for gap in reported if isinstance(reported, list) else []:
        try:
            yield Gap.model_validate(gap)
        except ValidationError:
            yield Gap(code="model_call_capture_gap_invalid")


def _merged_invocations(
    producer: TrajectoryRecord | None, observations: AgentObservations | None
) -> list[AgentInvocation]:
    """The producer's, then those that only the observations have."""
    merged = {invocation.invocation_id: invocation for invocation in (producer.invocations if producer else ())}
    for invocation in observations.invocations if observations else ():
        merged.setdefault(invocation.invocation_id, invocation)
    return list(merged.values())


def _merged_calls(producer: TrajectoryRecord | None, calls: list[Call]) -> list[Record]:
    """The producer's, completed by what was captured under the same id, then those that were captured only."""
    captured = [_captured_call(call) for call in calls]
    if producer is None:
        return captured
    by_id = {call["model_call_id"]: call for call in captured if call["model_call_id"] is not None}
    merged = []
    for call in producer.model_calls:
        reported = _plain(call, "model_calls")
        seen = by_id.pop(call.model_call_id, None)
        merged.append(reported if seen is None else _completed(reported, seen))
    reported_ids = {call.model_call_id for call in producer.model_calls} - {None}
    return merged + [call for call in captured if call["model_call_id"] not in reported_ids]


def _captured_call(call: Call) -> Record:
    request, response = call.get("request"), call.get("response")
    return {
        "model_call_id": call.get("model_call_id"),
        "started_at": call.get("started_at"),
        "completed_at": call.get("completed_at"),
        "duration_ms": call.get("latency_total_ms"),
        "request": call.get("request_raw") if request is None else request,
        "response": call.get("response_raw") if response is None else response,
        "response_metadata": {name: call.get(name) for name in _METADATA},
        "token_stats": {name: call.get(field) for name, field in _TOKENS.items()},
    }


def _completed(reported: Record, captured: Record) -> Record:
    """What was captured counts; what it does not know is taken from the producer."""
    merged = {}
    for name, value in captured.items():
        if name in ("response_metadata", "token_stats"):
            merged[name] = _completed(reported[name], value)
        else:
            merged[name] = reported[name] if value is None else value
    return merged


def _merged_tools(
    producer: TrajectoryRecord | None, observations: AgentObservations | None
) -> list[TrajectoryToolCall]:
    """The producer's, completed by what was observed of the same call, then those that were observed only."""
    tools: dict[tuple[str, str], list[TrajectoryToolCall]] = {}
    for tool in producer.tool_calls if producer else ():
        tools.setdefault((tool.invocation_id, tool.tool_call_id), []).append(tool)
    outputs = _outputs(observations.invocations if observations else ())
    for record in observations.records if observations else ():
        if not isinstance(record, ToolCallObservation):
            continue
        key = record.invocation_id, record.tool_call_id
        if producer is not None and key in tools:
            known = tools[key][0]
            seen = {name: value for name, value in record.model_dump().items() if value not in (None, "unknown")}
            output = outputs.get(key) if known.output is None else known.output
            tools[key][0] = known.model_copy(update={**seen, "output": output})
        else:
            observed = TrajectoryToolCall.model_construct(**record.model_dump(), output=outputs.get(key))
            tools.setdefault(key, []).append(observed)
    return [tool for group in tools.values() for tool in group]


def _outputs(invocations: Iterable[AgentInvocation]) -> dict[tuple[str, str], Any]:
    """What each tool call gave back, as the conversation of its invocation has it."""
    return {
        (invocation.invocation_id, item["call_id"]): item.get("output")
        for invocation in invocations
        for item in invocation.conversation
        if item.get("type") == "function_call_output" and isinstance(item.get("call_id"), str)
    }
