"""The same response in events."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from examples.scripted_model.responses import answer
from examples.scripted_model.responses_items import item_events

EMPTY: dict[str, dict[str, Any]] = {
    "reasoning": {"summary": []},
    "message": {"content": [], "status": "in_progress"},
    "function_call": {"arguments": "", "status": "in_progress"},
}


def events(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events, each named by its `type` and numbered."""
    whole, number = answer(body), count()
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "sequence_number": next(number), "response": begun}
    yield {"type": "response.in_progress", "sequence_number": next(number), "response": begun}
    for index, item in enumerate(whole["output"]):
        at = {"output_index": index}
        empty = {**item, **EMPTY[item["type"]]}
        yield {"type": "response.output_item.added", "sequence_number": next(number), **at, "item": empty}
        for event in item_events(item):
            yield {**event, "sequence_number": next(number), **at, "item_id": item["id"]}
        yield {"type": "response.output_item.done", "sequence_number": next(number), **at, "item": item}
    yield {"type": "response.completed", "sequence_number": next(number), "response": whole}
