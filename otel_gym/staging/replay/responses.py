"""A worker's chat answer as a response of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_gym.errors import ConversionError
from otel_gym.staging.compactions import compaction_item, wants_compaction
from otel_gym.staging.replay.worker_answer import ToolCall, WorkerAnswer

# What a response repeats of its request, with what stands there when the request does not say it.
_REPEATED: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": None,
    "store": None,
    "temperature": None,
    "text": None,
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": None,
    "user": None,
}
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def responses_answer(answer: WorkerAnswer, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer as a client of the Responses API gets it.

    Reasoning comes as summary, where readers of captures look for it. Unknown token counts are left out. Where a
    compaction was asked for, its item is all of the output: the reasoning behind it goes as that before it does.

    Args:
        answer: the worker's.
        request: the client's, as it came: what a response repeats of its request is taken from there.

    Raises:
        ConversionError: a compaction was asked for, and this is no summary.
    """
    reason = _INCOMPLETE.get(answer.finish)
    status = "completed" if reason is None else "incomplete"
    return {
        "id": response_id(answer),
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "model": answer.model,
        "output": [_compaction(answer)] if wants_compaction(request) else _output(answer, status),
        "usage": None if answer.usage is None else _usage(answer.usage),
        **{key: request.get(key, default) for key, default in _REPEATED.items()},
    }


def response_id(answer: WorkerAnswer) -> str:
    """The id of the response that a worker's answer becomes."""
    return f"resp_{answer.suffix.removeprefix('resp_')}"


def _compaction(answer: WorkerAnswer) -> dict[str, Any]:
    if not answer.text or answer.refusal or answer.tool_calls:
        raise ConversionError("a compaction is a text and nothing else")
    return compaction_item(answer.text, f"cmp_{answer.suffix.removeprefix('resp_')}")


def _output(answer: WorkerAnswer, status: str) -> list[dict[str, Any]]:
    suffix = answer.suffix.removeprefix("resp_")
    items: list[dict[str, Any]] = []
    if answer.reasoning is not None:
        summary = [{"type": "summary_text", "text": answer.reasoning}]
        items.append({"type": "reasoning", "id": f"rs_{suffix}", "summary": summary, "status": "completed"})
    parts: list[dict[str, Any]] = []
    if answer.text or (answer.text is not None and not answer.refusal and not answer.tool_calls):
        annotations = [_annotation(note) for note in answer.annotations]
        parts.append({"type": "output_text", "text": answer.text, "annotations": annotations, "logprobs": []})
    if answer.refusal:
        parts.append({"type": "refusal", "refusal": answer.refusal})
    if parts:
        whole = "completed" if answer.tool_calls else status
        message = {"type": "message", "id": f"msg_{suffix}", "role": "assistant", "status": whole, "content": parts}
        items.append(message)
    last = len(answer.tool_calls) - 1
    items += [
        _call_item(call, f"{suffix}_{number}", status if number == last else "completed")
        for number, call in enumerate(answer.tool_calls)
    ]
    return items


def _call_item(call: ToolCall, suffix: str, status: str) -> dict[str, Any]:
    item = {
        "type": "custom_tool_call" if call.custom else "function_call",
        "id": f"{'ctc' if call.custom else 'fc'}_{suffix}",
        "call_id": call.call_id,
        "name": call.name,
        "input" if call.custom else "arguments": call.arguments,
        "status": status,
    }
    return item if call.namespace is None else {**item, "namespace": call.namespace}


def _annotation(note: Mapping[str, Any]) -> dict[str, Any]:
    """Chat keeps what an annotation says in an object of the annotation's type; here it stands beside the type."""
    inner = note.get(str(note.get("type")))
    if not isinstance(inner, Mapping):
        return dict(note)
    return {"type": note.get("type"), **inner}


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "input_tokens": usage.get("prompt_tokens"),
        "output_tokens": usage.get("completion_tokens"),
        "total_tokens": usage.get("total_tokens"),
    }
    for ours, theirs in (
        ("input_tokens_details", "prompt_tokens_details"),
        ("output_tokens_details", "completion_tokens_details"),
    ):
        details = usage.get(theirs)
        known = (
            {key: count for key, count in details.items() if count is not None} if isinstance(details, Mapping) else {}
        )
        if known:
            counts[ours] = known
    return counts
