"""A rollout in eight numbers: `ng_perf`.

Source: "Agent observations → trajectory → perf" of the rollout specification; every `ng_perf` of the corpus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from otel_gym.rollouts.joining import CallIndex
from otel_gym.rollouts.observations import Count
from otel_gym.rollouts.references import Evidence

PERF_KEY = "ng_perf"

_SUMS = {
    "prompt_tokens": "prompt_tokens",
    "cached_prompt_tokens": "cached_tokens",
    "completion_tokens": "completion_tokens",
    "reasoning_tokens": "reasoning_tokens",
}


class RolloutPerf(Evidence):
    """`ng_perf`. A number that is not known is left out."""

    num_turns: Count = Field(description="turns of all invocations; an invocation without a turn counts as one")
    num_tool_calls: Count = Field(description="executions of tools by observed invocations")
    token_observability_coverage: float = Field(ge=0, le=1, description="captured calls of the invocations ÷ turns")
    prompt_tokens: Count | None = None
    cached_prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    total_latency_ms: float | None = Field(default=None, description="the whole rollout, as its collector saw it")


def perf_of(trajectory: Mapping[str, Any], rollout_latency_ms: object) -> dict[str, Any] | None:
    """The numbers of a trajectory; None where no invocation was observed.

    Args:
        trajectory: an `ng_trajectory`.
        rollout_latency_ms: of the whole rollout; what is no number counts as unknown.
    """
    invocations = {invocation["invocation_id"]: invocation for invocation in trajectory["invocations"]}
    if not invocations:
        return None
    turns = Counter(turn["invocation_id"] for turn in trajectory["turns"])
    num_turns = sum(max(1, turns[invocation_id]) for invocation_id in invocations)
    calls = _calls_of(trajectory, list(invocations.values()))
    perf: dict[str, Any] = {
        "num_turns": num_turns,
        "num_tool_calls": sum(tool["invocation_id"] in invocations for tool in trajectory["tool_calls"]),
        "token_observability_coverage": min(1.0, len(calls) / num_turns),
    }
    for name, stat in _SUMS.items():
        known = [tokens for call in calls if (tokens := call["token_stats"][stat]) is not None]
        if known:
            perf[name] = sum(known)
    if isinstance(rollout_latency_ms, (int, float)):
        perf["total_latency_ms"] = rollout_latency_ms
    return perf


def _calls_of(trajectory: Mapping[str, Any], invocations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls that exactly one is meant by a reference of an invocation, each once."""
    index = CallIndex(
        [
            {
                "model_call_id": call["model_call_id"],
                "response_id": call["response_metadata"]["response_id"],
                "model_ref": call["response_metadata"]["model_ref"],
                "call": call,
            }
            for call in trajectory["model_calls"]
        ]
    )
    found = {}
    for invocation in invocations:
        for reference in invocation["model_calls"]:
            matches = index.matches(reference)
            if len(matches) == 1:
                call = matches[0]["call"]
                found[id(call)] = call
    return list(found.values())
