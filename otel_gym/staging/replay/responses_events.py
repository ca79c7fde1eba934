"""A whole response as the events of a Responses stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from otel_gym.staging.replay.event_text import event, pieces


def responses_events(response: Mapping[str, Any]) -> Iterator[bytes]:
    """The events that a client puts together to this response; the last one holds all of it.

    Raises:
        ConversionError: something of it is no JSON.
    """
    for number, payload in enumerate(_payloads(response)):
        yield event({**payload, "sequence_number": number}, payload["type"])


def _payloads(response: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**response, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(response["output"]):
        at = {"output_index": index}
        empty, changes = _ITEMS[item["type"]](item)
        begun_item = {**empty, "status": "in_progress"} if "status" in item else empty
        yield {"type": "response.output_item.added", **at, "item": begun_item}
        for change in changes:
            yield {**change, **at, "item_id": item["id"]}
        yield {"type": "response.output_item.done", **at, "item": item}
    yield {"type": f"response.{response['status']}", "response": response}


Item = dict[str, Any]


def _reasoning(item: Item) -> tuple[Item, Iterator[Item]]:
    def changes() -> Iterator[Item]:
        for index, part in enumerate(item["summary"]):
            at = {"summary_index": index}
            yield {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}}
            for piece in pieces(part["text"]):
                yield {"type": "response.reasoning_summary_text.delta", **at, "delta": piece}
            yield {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]}
            yield {"type": "response.reasoning_summary_part.done", **at, "part": part}

    return {**item, "summary": []}, changes()


def _message(item: Item) -> tuple[Item, Iterator[Item]]:
    def changes() -> Iterator[Item]:
        for index, part in enumerate(item["content"]):
            at = {"content_index": index}
            if part["type"] == "refusal":
                yield {"type": "response.content_part.added", **at, "part": {**part, "refusal": ""}}
                for piece in pieces(part["refusal"]):
                    yield {"type": "response.refusal.delta", **at, "delta": piece}
                yield {"type": "response.refusal.done", **at, "refusal": part["refusal"]}
            else:
                yield {"type": "response.content_part.added", **at, "part": {**part, "text": "", "annotations": []}}
                for piece in pieces(part["text"]):
                    yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
                for number, note in enumerate(part["annotations"]):
                    added = {"annotation_index": number, "annotation": note}
                    yield {"type": "response.output_text.annotation.added", **at, **added}
                yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
            yield {"type": "response.content_part.done", **at, "part": part}

    return {**item, "content": []}, changes()


def _function_call(item: Item) -> tuple[Item, Iterator[Item]]:
    def changes() -> Iterator[Item]:
        for piece in pieces(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", "delta": piece}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **done}

    return {**item, "arguments": ""}, changes()


def _custom_tool_call(item: Item) -> tuple[Item, Iterator[Item]]:
    def changes() -> Iterator[Item]:
        for piece in pieces(item["input"]):
            yield {"type": "response.custom_tool_call_input.delta", "delta": piece}
        yield {"type": "response.custom_tool_call_input.done", "input": item["input"]}

    return {**item, "input": ""}, changes()


def _compaction(item: Item) -> tuple[Item, Iterator[Item]]:
    return {**item, "encrypted_content": ""}, iter(())


_ITEMS = {
    "reasoning": _reasoning,
    "message": _message,
    "function_call": _function_call,
    "custom_tool_call": _custom_tool_call,
    "compaction": _compaction,
}
