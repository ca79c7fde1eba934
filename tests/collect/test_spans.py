from __future__ import annotations

import math
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_gym import semconv
from otel_gym.collect.spans import Rollout, Times, rollout_spans
from otel_gym.trace_ids import call_span_id, rollout_trace

S = 1_000_000_000
RUN = "run"
ROW: dict[str, Any] = {"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 2}
IDS = ["1" * 32, "2" * 32, "3" * 32]


def call(number: int, start: float, end: float, *tool_calls: str) -> dict[str, Any]:
    tools = [{"call_id": name, "name": "t", "arguments": {}} for name in tool_calls]
    return {"model_call_id": IDS[number], "started_at": start, "completed_at": end, "tool_calls": tools}


def spans(*records: dict[str, Any], calls: Any = (), row: Any = ROW, failure: str | None = None, **result: Any) -> Any:
    if records:
        result["ng_agent_observations"] = {"source": "harness", "records": [*records], "gaps": []}
    result["ng_model_call_capture"] = {"calls": [*calls]}
    return rollout_spans(Rollout(RUN, "3-1-a2", row, result, failure, Times(10 * S, 20 * S)))


def seconds(span: ReadableSpan) -> tuple[float, float]:
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.start_time < span.end_time
    return round(span.start_time / S, 6), round(span.end_time / S, 6)


def invocation(name: str, parent: str | None = None, calls: Any = (), **more: Any) -> dict[str, Any]:
    references = [{"model_call_id": IDS[number]} for number in calls]
    named = {"invocation_id": name, "parent_invocation_id": parent, "model_calls": references}
    return {"kind": "agent_invocation", **named, **more}


def tool(call_id: str, of: str, **more: Any) -> dict[str, Any]:
    return {"kind": "tool_call", "invocation_id": of, "tool_call_id": call_id, "tool_name": "search", **more}


def parents(found: list[ReadableSpan]) -> list[int | None]:
    """The place of each span's parent among them."""
    places = {span.context.span_id: place for place, span in enumerate(found)}
    return [None if span.parent is None else places[span.parent.span_id] for span in found]


def test_the_root_has_the_derived_ids_the_agent_and_the_reward() -> None:
    [root] = spans(row={**ROW, "agent_ref": {"name": "solver"}}, reward=1)
    assert rollout_trace(RUN, "3-1-a2") == (root.context.trace_id, root.context.span_id)
    assert ("invoke_agent solver", None, (10.0, 20.0)) == (root.name, root.parent, seconds(root))
    assert {
        semconv.ROLLOUT_ID: "3-1-a2",
        semconv.OPERATION_NAME: "invoke_agent",
        semconv.ROLLOUT_TASK_INDEX: 3,
        semconv.ROLLOUT_ROLLOUT_INDEX: 1,
        semconv.ROLLOUT_ATTEMPT: 2,
        semconv.AGENT_NAME: "solver",
    } == dict(root.attributes)
    [event] = root.events
    expected = {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": 1.0}
    assert ("gen_ai.evaluation.result", expected, 20 * S) == (event.name, dict(event.attributes), event.timestamp)


@pytest.mark.parametrize("reward", [None, True, "1", [1], math.nan, math.inf])
def test_what_is_no_number_is_no_reward(reward: Any) -> None:
    assert () == tuple(spans(reward=reward)[0].events)


def test_a_rollout_without_a_result_says_why_by_its_code_only() -> None:
    [root] = spans(failure="timeout")
    assert (StatusCode.ERROR, "timeout") == (root.status.status_code, root.status.description)
    assert "timeout" == root.attributes["error.type"]


def test_sub_agents_hang_below_those_that_started_them_and_tools_below_their_agents() -> None:
    found = spans(
        invocation("lead"),
        invocation("first", "lead", [0, 1]),
        invocation("orphan", "unseen", [2]),
        tool("a", "first"),
        calls=[call(0, 12, 13, "a"), call(1, 14, 15), call(2, 16, 17)],
    )
    assert ["invoke_agent harness", "invoke_agent", "invoke_agent", "invoke_agent", "execute_tool search"] == [
        span.name for span in found
    ]
    assert [None, 0, 1, 0, 2] == parents(found)
    assert [(10, 20), (12, 15), (12, 15), (16, 17), (13, 13)] == [seconds(span) for span in found]
    assert [call_span_id(IDS[0]), call_span_id(IDS[1])] == [link.context.span_id for link in found[2].links]
    assert {found[0].context.trace_id} == {span.context.trace_id for span in found}
    assert 5 == len({span.context.span_id for span in found})


@pytest.mark.parametrize(
    ("times", "expected", "how"),
    [
        ({"started_at": 11.0, "completed_at": 12.5}, (11, 12.5), "reported"),
        ({"started_at": 11.0, "duration_ms": 500}, (11, 11.5), "reported"),
        ({"completed_at": 12.0, "duration_ms": 500}, (11.5, 12), "reported"),
        ({"duration_ms": 500}, (13, 13.5), "derived"),
        ({}, (13, 13), "derived"),
    ],
)
def test_a_tool_ran_when_the_agent_says_else_from_the_end_of_the_call_that_asked_for_it(
    times: dict[str, Any], expected: tuple[float, float], how: str
) -> None:
    record = tool("a", "lead", status="failed", error_type="E", **times)
    found = spans(invocation("lead", None, [0]), record, calls=[call(0, 12, 13, "a")])[-1]
    assert (expected, how) == (seconds(found), found.attributes["otel_gym.observed.times"])
    assert ("failed", "E") == (found.attributes["otel_gym.observed.status"], found.attributes["error.type"])


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"model_calls": [{"model_call_id": IDS[1]}], "observed_at": 19.0}, (14, 15)),
        ({"observed_at": 19.0}, (19, 19)),
        ({"before_model_call": {"model_call_id": IDS[0]}}, (13, 13)),
        ({"after_model_call": {"model_call_id": IDS[1]}}, (14, 14)),
        ({}, (10, 10)),
    ],
)
def test_a_compaction_is_where_its_calls_are(where: dict[str, Any], expected: tuple[float, float]) -> None:
    record = {"kind": "context_compaction", "invocation_id": "lead", "tokens_before": 9, "summary": "secret", **where}
    found = spans(invocation("lead", None, [0]), record, calls=[call(0, 12, 13), call(1, 14, 15)])[-1]
    assert ("compact_context", expected) == (found.name, seconds(found))
    assert 9 == found.attributes["otel_gym.compaction.tokens_before"]
    assert "secret" not in str(dict(found.attributes))


def test_observations_that_are_not_what_their_schema_says_leave_the_root() -> None:
    assert 1 == len(spans({"kind": "no such"}))


def test_every_attribute_stands_in_the_table_and_the_table_in_the_spans() -> None:
    compaction = {"kind": "context_compaction", "invocation_id": "lead", "tokens_before": 9, "tokens_after": 3}
    compaction |= {"trigger": "auto", "outcome": "done"}
    found = spans(invocation("lead", status="done"), tool("a", "lead", error_type="E"), compaction, failure="timeout")
    emitted = [name for span in found for name in span.attributes]
    assert (set(), set()) == semconv.differences(emitted, semconv.ROLLOUT_ATTRIBUTES)


def test_strings_that_agents_give_are_cut_to_what_backends_index() -> None:
    [_, found, ran] = spans(invocation("x" * 1_000), tool("t", "x" * 1_000, tool_name="y" * 1_000))
    assert 255 == len(found.attributes["gen_ai.agent.id"])
    assert ("execute_tool " + "y" * 242, "y" * 255) == (ran.name, ran.attributes["gen_ai.tool.name"])
