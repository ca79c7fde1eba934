"""One output item of a response in events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from examples.scripted_model.script import pieces


def item_events(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What the stream says of an item between its beginning and its end."""
    if item["type"] == "function_call":
        call, arguments = "response.function_call_arguments", item["arguments"]
        yield from ({"type": f"{call}.delta", "delta": piece} for piece in pieces(arguments))
        yield {"type": f"{call}.done", "name": item["name"], "arguments": arguments}
    elif item["type"] == "reasoning":
        yield from text_events(item["summary"][0], "reasoning_summary_part", "reasoning_summary_text", "summary_index")
    else:
        yield from text_events(item["content"][0], "content_part", "output_text", "content_index")


def text_events(part: dict[str, Any], name: str, text: str, index: str) -> Iterator[dict[str, Any]]:
    """What it says of one text: a message's, or a thought's."""
    yield {"type": f"response.{name}.added", index: 0, "part": {**part, "text": ""}}
    for piece in pieces(part["text"]):
        yield {"type": f"response.{text}.delta", index: 0, "delta": piece, "logprobs": []}
    yield {"type": f"response.{text}.done", index: 0, "text": part["text"], "logprobs": []}
    yield {"type": f"response.{name}.done", index: 0, "part": part}
