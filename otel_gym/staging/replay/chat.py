"""A whole chat answer as the events of a chat stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from otel_gym.errors import ConversionError
from otel_gym.staging.replay.event_text import event, pieces

_TEXTS = ("reasoning_content", "reasoning", "content", "refusal")
_CHUNK_KEYS = ("id", "created", "model", "service_tier", "system_fingerprint")


def chat_events(answer: Mapping[str, Any], *, include_usage: bool = False) -> Iterator[bytes]:
    """The events that a client of Chat Completions puts together to this answer.

    Args:
        answer: with any number of choices.
        include_usage: the client asked for a chunk of its own with the usage; else the last chunk of a choice has it,
            where clients that do not look for it are not disturbed.

    Raises:
        ConversionError: the answer has no choices that could be replayed.
    """
    chunk = {"object": "chat.completion.chunk", **{key: answer[key] for key in _CHUNK_KEYS if key in answer}}
    usage = answer.get("usage")
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices:
        raise ConversionError("an answer has choices")
    for place, choice in enumerate(choices):
        if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
            raise ConversionError("a choice has a message")
        index = choice.get("index", place)
        for delta in _deltas(choice["message"]):
            yield event({**chunk, "choices": [{"index": index, "delta": delta, "finish_reason": None}]})
        rest = {key: value for key, value in choice.items() if key not in ("message", "index")}
        end = {**chunk, "choices": [{"index": index, "delta": {}, "finish_reason": None, **rest}]}
        if usage is not None and not include_usage and place == len(choices) - 1:
            end["usage"] = usage
        yield event(end)
    if include_usage:
        yield event({**chunk, "choices": [], "usage": usage})
    yield event("[DONE]")


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    first = {"role": message.get("role") or "assistant"}
    calls = message.get("tool_calls")
    for key, value in message.items():
        if key in _TEXTS and isinstance(value, str):
            first[key] = ""
        elif key not in ("role", "tool_calls", *_TEXTS) or (key in _TEXTS and value is not None):
            first[key] = value
    if calls is not None and not isinstance(calls, list):
        raise ConversionError("tool_calls is a list")
    if calls == []:
        first["tool_calls"] = []
    yield first
    for key in _TEXTS:
        if isinstance(message.get(key), str):
            yield from ({key: piece} for piece in pieces(message[key]))
    for index, call in enumerate(calls or ()):
        if not isinstance(call, dict):
            raise ConversionError("a tool call is an object")
        yield from _call_deltas(index, call)


def _call_deltas(index: int, call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for kind, field in (("function", "arguments"), ("custom", "input")):
        called = call.get(kind)
        if isinstance(called, dict) and isinstance(called.get(field), str):
            yield {"tool_calls": [{"index": index, **call, kind: {**called, field: ""}}]}
            for piece in pieces(called[field]):
                yield {"tool_calls": [{"index": index, kind: {field: piece}}]}
            return
    yield {"tool_calls": [{"index": index, **call}]}
