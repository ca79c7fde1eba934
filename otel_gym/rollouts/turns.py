"""Turns of a trajectory, made of captured calls whose owner is known.

Source: the cases `attach-join-*`, `attach-turn-contents` and `attach-calls-that-returned-nothing-*` of the corpus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from otel_gym.rollouts.joining import Call, reference_to
from otel_gym.rollouts.observations import AgentInvocation

Turn = dict[str, Any]
"""A `TrajectoryTurn`, as a dictionary: what a call holds is shared with it, not copied."""

_REASONING = ("reasoning_content", "reasoning")


def turns_of(
    calls: Sequence[Call], invocations: Iterable[AgentInvocation], task_id: str, rollout_id: str, resolved: object
) -> list[Turn]:
    """One turn for each call with an answer that an invocation refers to, in the order of the calls.

    Raises:
        AttributeError: an answer has a shape that no API has.
    """
    owners = _owners(invocations)
    numbers: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    turns: list[Turn] = []
    for call in calls:
        owner = owners.get(call.get("model_call_id")) or owners.get(call.get("response_id"))
        response = call.get("response")
        if owner is None or (response is None and call.get("response_raw") is None):
            continue
        numbers[owner] += 1
        answer, reasoning, tool_calls = _answer(response)
        reference = reference_to(call)
        turns.append(
            {
                "invocation_id": owner,
                "task_id": task_id,
                "rollout_id": rollout_id,
                "turn_no": numbers[owner],
                "timestamp": call.get("started_at") or call.get("completed_at") or 0.0,
                "question": _question(call),
                "answer": answer,
                "reasoning_content": reasoning,
                "resolved": None,
                "step_count": steps[owner],
                "model_calls": [] if reference is None else [reference],
            }
        )
        steps[owner] += tool_calls
    if turns and isinstance(resolved, bool):
        turns[-1]["resolved"] = resolved
    return turns


def _owners(invocations: Iterable[AgentInvocation]) -> dict[str | None, str]:
    """Invocation by each id that it refers to; of two that refer to one call, the later."""
    owners: dict[str | None, str] = {}
    for invocation in invocations:
        for reference in invocation.model_calls:
            owners[reference.model_call_id] = invocation.invocation_id
            owners[reference.response_id] = invocation.invocation_id
    owners.pop(None, None)
    return owners


def _question(call: Call) -> Any:
    request = call.get("request")
    if not isinstance(request, dict):
        return call.get("request_raw") if request is None else request
    if "input" not in request:
        return request.get("messages")
    items = request["input"]
    if not isinstance(items, list):
        return items
    return [
        {"type": "message", **item} if isinstance(item, dict) and "role" in item and "type" not in item else item
        for item in items
    ]


def _answer(response: Any) -> tuple[Any, Any, int]:
    """Answer, reasoning and the number of tool calls that it asks for, of the Responses and the Chat API.

    Messages, and text that is no JSON, have none of them here.
    """
    if not isinstance(response, dict):
        return None, None, 0
    output = response.get("output")
    if isinstance(output, list):
        items = [item for item in output if isinstance(item, dict)]
        reasoning = [item for item in items if item.get("type") == "reasoning"]
        answer = [item for item in items if item.get("type") != "reasoning"]
        calls = sum(item.get("type") == "function_call" for item in answer)
        return answer or None, reasoning or None, calls
    choices = response.get("choices")
    if isinstance(choices, list) and choices:
        message = choices[0].get("message") or {}
        said = {key: value for key, value in message.items() if key not in _REASONING}
        asked = message.get("tool_calls")
        return said, message.get("reasoning_content") or message.get("reasoning"), len(asked or ())
    return None, None, 0
