"""The same completion in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from examples.scripted_model.chat import answer
from examples.scripted_model.script import pieces


def deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A message cut into what each chunk adds to it."""
    yield {"role": "assistant", "content": ""}
    for key in ("reasoning_content", "content"):
        yield from ({key: piece} for piece in pieces(message[key]))
    for index, call in enumerate(message.get("tool_calls", ())):
        yield {"tool_calls": [{**call, "index": index, "function": {**call["function"], "arguments": ""}}]}
        for piece in pieces(call["function"]["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def events(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The chunks; usage comes last, to those who ask for it."""
    whole = answer(body)
    choice = whole["choices"][0]
    chunk = {**whole, "object": "chat.completion.chunk", "usage": None}
    for delta in deltas(choice["message"]):
        yield {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**chunk, "choices": [], "usage": whole["usage"]}
