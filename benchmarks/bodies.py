"""The exchanges of the scenarios, with bodies of exactly the sizes that they are named by."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from benchmarks.exchange import Exchange

KIB = 2**10
MIB = 2**20
PROSE = "The tests fail in the second module; run them again with more output and read the first error.\n"


def small() -> Exchange:
    """8 KB request → 4 KB answer."""
    return Exchange("/v1/chat/completions", chat_request(8 * KIB), (completion(4 * KIB),))


def tiny() -> Exchange:
    """1 KB → 0.5 KB, for counting what a call leaves behind."""
    return Exchange("/v1/chat/completions", chat_request(KIB), (completion(KIB // 2),))


def long_conversation() -> Exchange:
    """400 KB → 20 KB."""
    return Exchange("/v1/chat/completions", chat_request(400 * KIB), (completion(20 * KIB),))


def huge_request() -> Exchange:
    """A 16 MB request, its bulk in images of 1 MB, → 4 KB."""
    request = chat_request(16 * MIB, message_size=MIB, text="iVBORw0KGgoAAAANSUhEUgAA")
    return Exchange("/v1/chat/completions", request, (completion(4 * KIB),))


def chat_stream(chunks: int) -> Exchange:
    """8 KB → a chat stream of so many chunks, each one token, and `[DONE]`."""
    head: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_790_000_000,
        "model": "toy",
    }
    words = [f"{word} " for word in PROSE.split()]
    deltas: list[dict[str, Any]] = [{"content": words[number % len(words)]} for number in range(chunks - 2)]
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.insert(0, {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None})
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    events = [b"data: " + dump({**head, "choices": [choice]}) + b"\n\n" for choice in choices]
    return Exchange("/v1/chat/completions", chat_request(8 * KIB, stream=True), (*events, b"data: [DONE]\n\n"), True)


def one_large_event(size: int) -> Exchange:
    """A Responses stream whose last event has so many bytes, in pieces of 4 KiB."""

    def completed(text: str) -> dict[str, Any]:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
        response = {"id": "resp_1", "object": "response", "status": "completed", "model": "toy", "output": [item]}
        return {"type": "response.completed", "sequence_number": 1, "response": response}

    created: dict[str, Any] = {
        "type": "response.created",
        "sequence_number": 0,
        "response": {"id": "resp_1", "status": "in_progress"},
    }
    framing = len(b"event: response.completed\ndata: \n\n")
    wire = b"event: response.created\ndata: " + dump(created) + b"\n\n"
    wire += b"event: response.completed\ndata: " + exactly(size - framing, completed) + b"\n\n"
    pieces = tuple(wire[start : start + 4 * KIB] for start in range(0, len(wire), 4 * KIB))
    request = exactly(8 * KIB, lambda text: {"model": "toy", "stream": True, "input": text})
    return Exchange("/v1/responses", request, pieces, stream=True)


def chat_request(size: int, *, message_size: int = 2 * KIB, text: str = PROSE, stream: bool = False) -> bytes:
    """A conversation: messages of about `message_size` bytes, the last one as long as makes the size exact."""
    turn = {"content": text * (message_size // len(text))}
    count = max(0, size // (message_size + 64) - 1)
    turns = [{"role": ("user", "assistant")[number % 2], **turn} for number in range(count)]
    return exactly(
        size, lambda rest: {"model": "toy", "stream": stream, "messages": [*turns, {"role": "user", "content": rest}]}
    )


def completion(size: int) -> bytes:
    """A whole chat completion."""
    return exactly(
        size,
        lambda text: {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_790_000_000,
            "model": "toy",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 2048, "completion_tokens": 1024, "total_tokens": 3072},
        },
    )


def exactly(size: int, make: Callable[[str], dict[str, Any]]) -> bytes:
    """The JSON of `make(text)`, with the text that gives it so many bytes.

    Raises:
        ValueError: even without text it has more.
    """
    room = size - len(dump(make("")))
    if room < 0:
        raise ValueError(f"{size} bytes are too few by {-room}")
    prose = PROSE.replace("\n", " ")
    return dump(make((prose * (room // len(prose) + 1))[:room]))


def dump(value: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()
