"""Tool calls, reasoning text and finish reason of an answer, in any of the three response shapes.

The shape is told by the answer itself and not by the dialect: servers do answer in another one's shape.
An `output` list is a Responses answer, else `choices` a Chat Completions one, else `content` a Messages one.
Source: "ModelCallRecord" of the rollout specification; conformance topic `json_success`.

A shape that no API has (`tool_calls: 5`) raises TypeError, by which the reader knows a record that it cannot use.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import orjson


def tool_calls(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every function call of the answer as `{"call_id", "name", "arguments"}`, in order."""
    if isinstance(output := response.get("output"), list):
        return [
            _tool_call(item.get("call_id") or item.get("id"), item.get("name"), _arguments(item.get("arguments")))
            for item in _objects(output)
            if item.get("type") == "function_call"
        ]
    if isinstance(choices := response.get("choices"), list):
        calls = []
        for message in _messages(choices):
            for call in _objects(message.get("tool_calls") or ()):
                function = call.get("function")
                if not isinstance(function, Mapping):
                    function = {}
                calls.append(_tool_call(call.get("id"), function.get("name"), _arguments(function.get("arguments"))))
        return calls
    if isinstance(content := response.get("content"), list):
        return [
            _tool_call(block.get("id"), block.get("name"), block.get("input") or {})
            for block in _objects(content)
            if block.get("type") == "tool_use"
        ]
    return []


def reasoning_content(response: Mapping[str, Any]) -> str | None:
    """The reasoning of the answer, its parts joined by newlines; None when there is none."""
    parts: list[Any] = []
    if isinstance(output := response.get("output"), list):
        for item in _objects(output):
            if item.get("type") == "reasoning":
                parts.extend(part.get("text") or None for part in _objects(item.get("summary") or ()))
    elif isinstance(choices := response.get("choices"), list):
        parts.extend(
            message.get("reasoning_content") or message.get("reasoning") or None for message in _messages(choices)
        )
    elif isinstance(content := response.get("content"), list):
        parts.extend(
            block.get("thinking")
            for block in _objects(content)
            if block.get("type") in ("thinking", "redacted_thinking")
        )
    texts = [part for part in parts if isinstance(part, str)]
    return "\n".join(texts) if texts else None


def finish_reason(response: Mapping[str, Any]) -> str | None:
    """`stop_reason`, else the first choice's `finish_reason`, else the reason that the answer is incomplete."""
    choices = response.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    details = response.get("incomplete_details")
    for reason in (
        response.get("stop_reason"),
        first.get("finish_reason") if isinstance(first, Mapping) else None,
        details.get("reason") if isinstance(details, Mapping) else None,
    ):
        if isinstance(reason, str) and reason:
            return reason
    return None


def _objects(items: Any) -> Iterator[Mapping[str, Any]]:
    return (item for item in items if isinstance(item, Mapping))


def _messages(choices: list[Any]) -> Iterator[Mapping[str, Any]]:
    for choice in _objects(choices):
        if isinstance(message := choice.get("message"), Mapping):
            yield message


def _tool_call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    return {"call_id": call_id, "name": name, "arguments": arguments}


def _arguments(arguments: Any) -> Any:
    """Arguments as a JSON value; a text that is none, or none that can be stored, as `{"_raw": text}`."""
    if isinstance(arguments, Mapping):
        return dict(arguments)
    if not isinstance(arguments, str):
        return {}
    try:
        # Through orjson once more, so that NaN is null here as everywhere, and nothing comes out that cannot be
        # written again (integers beyond 64 bits, lone surrogates, depth).
        return orjson.loads(orjson.dumps(json.loads(arguments)))
    except (ValueError, TypeError, RecursionError):
        return {"_raw": arguments}
