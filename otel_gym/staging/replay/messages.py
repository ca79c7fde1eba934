"""A worker's chat answer as an answer of the Messages API, and that as its events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from otel_gym.errors import ConversionError
from otel_gym.staging.replay.event_text import event, json_bytes, pieces
from otel_gym.staging.replay.worker_answer import ToolCall, WorkerAnswer

_STOP_REASONS = {"length": "max_tokens", "content_filter": "refusal"}


def messages_answer(answer: WorkerAnswer, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer as a client of the Messages API gets it.

    Args:
        answer: the worker's.
        request: the client's; its `stop_sequences` tell whether one of them ended the answer.

    Raises:
        ConversionError: a custom tool was called, which this API does not have.
    """
    content: list[dict[str, Any]] = []
    if answer.reasoning is not None:
        content.append({"type": "thinking", "thinking": answer.reasoning, "signature": ""})
    content += [{"type": "text", "text": text} for text in (answer.text, answer.refusal) if text]
    content += [_tool_use(call) for call in answer.tool_calls]
    if answer.text == "" and not content:
        content.append({"type": "text", "text": ""})
    by_sequence = answer.stop_sequence is not None and answer.stop_sequence in (request.get("stop_sequences") or ())
    stop_reason = _STOP_REASONS.get(answer.finish)
    if stop_reason is None:
        if answer.tool_calls:
            stop_reason = "tool_use"
        elif answer.refusal:
            stop_reason = "refusal"
        else:
            stop_reason = "stop_sequence" if by_sequence else "end_turn"
    return {
        "id": f"msg_{answer.suffix.removeprefix('msg_')}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": answer.stop_sequence if stop_reason == "stop_sequence" else None,
        "usage": _usage(answer.usage or {}),
    }


def messages_events(message: Mapping[str, Any]) -> Iterator[bytes]:
    """The events that a client puts together to this message.

    Raises:
        ConversionError: something of it is no JSON.
    """
    start = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    usage = message["usage"]
    so_far = None if usage.get("output_tokens") is None else 0
    yield _named("message_start", message={**start, "usage": {**usage, "output_tokens": so_far}})
    for index, block in enumerate(message["content"]):
        empty, deltas = _block(block)
        yield _named("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            yield _named("content_block_delta", index=index, delta=delta)
        yield _named("content_block_stop", index=index)
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    yield _named("message_delta", delta=delta, usage=usage)
    yield _named("message_stop")


def _block(block: Mapping[str, Any]) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """A content block as it begins, and what makes it whole."""
    if block["type"] == "thinking":
        deltas = ({"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"]))
        return {**block, "thinking": ""}, deltas
    if block["type"] == "text":
        return {**block, "text": ""}, ({"type": "text_delta", "text": piece} for piece in pieces(block["text"]))
    text = json_bytes(block["input"]).decode("utf-8")
    return {**block, "input": {}}, ({"type": "input_json_delta", "partial_json": piece} for piece in pieces(text))


def _named(name: str, **fields: Any) -> bytes:
    return event({"type": name, **fields}, name)


def _tool_use(call: ToolCall) -> dict[str, Any]:
    if call.custom:
        raise ConversionError(f"the Messages API has no custom tools, and the model called {call.name!r:.80}")
    block = {"type": "tool_use", "id": call.call_id, "name": call.name, "input": _input(call.arguments)}
    return block if call.namespace is None else {**block, "namespace": call.namespace}


def _input(arguments: str) -> dict[str, Any]:
    """The arguments as an object; what is none is kept as `{"_raw": …}`, as in a capture record."""
    if not arguments.strip():
        return {}
    try:
        parsed = json.loads(json_bytes(json.loads(arguments)))  # as a stream's client reads it
    except (ValueError, RecursionError):
        return {"_raw": arguments}
    return parsed if isinstance(parsed, dict) else {"_raw": arguments}


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Unknown counts are null. Tokens read from a cache stand beside `input_tokens` here, and within them in chat."""
    tokens_in, details = usage.get("prompt_tokens"), usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    counts = {"input_tokens": tokens_in, "output_tokens": usage.get("completion_tokens")}
    if isinstance(cached, int) and isinstance(tokens_in, int) and 0 <= cached <= tokens_in:
        counts = {**counts, "input_tokens": tokens_in - cached, "cache_read_input_tokens": cached}
    details = usage.get("completion_tokens_details")
    thoughts = details.get("reasoning_tokens") if isinstance(details, Mapping) else None
    return counts if thoughts is None else {**counts, "output_tokens_details": {"thinking_tokens": thoughts}}
