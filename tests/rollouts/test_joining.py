"""Beyond the corpus: that a join can be repeated, and that it is linear."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from otel_gym.rollouts import AgentObservations, join
from otel_gym.rollouts.joining import CallIndex

SERVER = {"type": "responses_api_models", "name": "policy"}
IDS = st.sampled_from(["a", "b", "c", None])


def call(index: int, call_id: str | None, response_id: str | None, session: str | None = None) -> dict[str, Any]:
    return {
        "call_index": index,
        "model_call_id": call_id,
        "response_id": response_id,
        "model_ref": SERVER,
        "client_session_id": session,
    }


def reference(call_id: str | None, response_id: str | None) -> dict[str, Any]:
    if call_id is None and response_id is None:
        call_id = "a"
    return {"model_call_id": call_id, "model_ref": SERVER, "response_id": response_id}


@st.composite
def reports(draw: Any) -> tuple[AgentObservations, list[dict[str, Any]]]:
    references = st.lists(st.builds(reference, IDS, IDS), max_size=4)
    records: list[dict[str, Any]] = [
        {"kind": "agent_invocation", "invocation_id": name, "model_calls": draw(references)} for name in ("x", "y")
    ]
    records += [
        {
            "kind": "context_compaction",
            "invocation_id": draw(st.sampled_from(["x", "z"])),
            "model_calls": draw(references),
            "before_model_call": draw(st.none() | st.builds(reference, IDS, IDS)),
        }
    ]
    calls = [
        call(index, draw(IDS), draw(IDS), draw(st.sampled_from([None, "x", "y"])))
        for index in range(draw(st.integers(0, 5)))
    ]
    return AgentObservations.model_validate({"source": "s", "records": records, "gaps": [{"code": "own"}]}), calls


@given(reports())
def test_joining_twice_gives_the_same(report: tuple[AgentObservations, list[dict[str, Any]]]) -> None:
    observations, calls = report
    once = join(observations, calls)
    assert once.model_dump() == join(once, calls).model_dump()
    assert once.model_dump() == AgentObservations.model_validate(once.model_dump()).model_dump()


@given(reports())
def test_every_captured_call_has_an_owner_or_a_gap(report: tuple[AgentObservations, list[dict[str, Any]]]) -> None:
    observations, calls = report
    joined = join(observations, calls)
    index = CallIndex(calls)
    owned = [
        match
        for invocation in joined.invocations
        for reference in invocation.model_calls
        if len(found := index.matches(reference.model_dump())) == 1
        for match in found
    ]
    gaps = {gap.detail for gap in joined.gaps if gap.code == "model_call_ownership_unavailable"}
    for each in calls:
        name = each["model_call_id"] or each["response_id"] or "unknown"
        has_gap = f"capture:{name}:call_index={each['call_index']}" in gaps
        assert has_gap or any(each is one for one in owned) or each["client_session_id"] in ("x", "y")


def test_a_reference_to_many_calls_looks_at_two() -> None:
    calls = [call(index, "same", "r") for index in range(10_000)]
    index = CallIndex(calls)
    looked_at = index.matches(reference("same", "r"))
    assert [0, 1] == [found["call_index"] for found in looked_at]


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "agent_invocation", "invocation_id": ""},
        {"kind": "agent_invocation", "invocation_id": "x", "odd": 1},
        {"kind": "agent_invocation", "invocation_id": "x", "parent_invocation_id": "x"},
        {"kind": "agent_invocation", "invocation_id": "x", "model_calls": [{"response_id": "r"}]},
        {"kind": "tool_call", "invocation_id": "x", "tool_call_id": "t", "duration_ms": -1},
        {"kind": "context_compaction", "invocation_id": "x", "tokens_before": -1},
        {"kind": "unheard of"},
        {},
    ],
)
def test_what_observations_may_not_say_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AgentObservations.model_validate({"source": "s", "records": [record]})


def test_a_long_chain_of_sub_agents_is_no_cycle() -> None:
    records = [
        {"kind": "agent_invocation", "invocation_id": str(n), "parent_invocation_id": str(n + 1)} for n in range(5000)
    ]
    assert len(AgentObservations.model_validate({"source": "s", "records": records}).invocations) == 5000
