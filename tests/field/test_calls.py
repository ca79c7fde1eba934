"""Faults that people met elsewhere, about whole calls: inputs 14, 16, 18 to 21 and 23, 25 to 27 (of the record)."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import zstandard

from otel_gym.testing import JSON, Exchange, ScriptedModel, answer
from tests.field.capture import DONE, Capture, delta, message

# ---- 14: one event of several megabytes


async def test_14_an_event_of_megabytes_passes_and_is_kept_whole(capture: Capture) -> None:
    name = "response.image_generation_call.partial_image"
    picture = {"type": name, "output_index": 0, "partial_image_index": 0, "partial_image_b64": "A" * (4 << 20)}
    item = {"type": "image_generation_call", "id": "ig1", "status": "completed", "result": "B" * (1 << 20)}
    envelope = {"id": "r1", "status": "completed", "model": "m", "output": [item]}
    completed = {"type": "response.completed", "response": envelope}
    events = ((name, picture), ("response.completed", completed))
    body = b"".join(f"event: {event}\ndata: {json.dumps(data)}\n\n".encode() for event, data in events)
    pieces = [body[start : start + 4096] for start in range(0, len(body), 4096)]
    record = await capture.play(pieces, "responses")
    assert (envelope, None) == (record["response"], record["error_category"])


# ---- 16: compressed requests

REQUEST = {"model": "m", "input": "hi", "stream": True}
FRAME = zstandard.compress(json.dumps(REQUEST).encode())
ZSTD = ((b"content-encoding", b"zstd"), *JSON)


def bomb() -> bytes:
    """A frame of some 30 KB that holds a gigabyte."""
    compressor = zstandard.ZstdCompressor().compressobj()
    zeros = bytes(1 << 20)
    return b"".join([*(compressor.compress(zeros) for _ in range(1 << 10)), compressor.flush()])


async def sent(capture: Capture, body: bytes) -> dict[str, Any]:
    model = ScriptedModel.of(answer("responses", "hello"))
    async with capture.call(model, "responses", body=body, headers=ZSTD) as call:
        await call.rest()
    assert ([body], list(ZSTD)) == (model.bodies, model.scopes[0]["headers"])
    [record] = capture.records()
    assert answer("responses", "hello") == record["response"]
    return record


async def test_16_a_zstd_request_is_read_for_the_record_and_passed_on_as_it_is(capture: Capture) -> None:
    record = await sent(capture, FRAME)
    assert (REQUEST, False) == (record["request"], "request_raw" in record)


@pytest.mark.parametrize("cut", [1, 4, 6, len(FRAME) // 2, len(FRAME) - 1])
async def test_16_a_frame_that_is_cut_does_not_break_the_call(capture: Capture, cut: int) -> None:
    record = await sent(capture, FRAME[:cut])
    assert (None, True) == (record["request"], bool(record["request_raw"]))


async def test_16_a_bomb_costs_no_more_than_the_limit_of_a_body(tmp_path: Any) -> None:
    capture = Capture(tmp_path, body_limit_bytes=1 << 20)
    data = bomb()
    assert len(data) < 100_000
    record = await sent(capture, data)
    assert (None, True) == (record["request"], bool(record["request_raw"]))


async def test_16_without_the_library_the_call_is_served_all_the_same(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    record = await sent(capture, FRAME)
    assert (None, True) == (record["request"], bool(record["request_raw"]))


# ---- 18: probes


@pytest.mark.parametrize(
    ("method", "path", "seen"),
    [
        ("HEAD", "/ng-rollout/0-0/api/hello", ("/api/hello", b"")),
        ("HEAD", "/ng-rollout/0-0", ("/ng-rollout/0-0", b"")),
        (
            "OPTIONS",
            "/ng-rollout/0-0/v1/messages/count_tokens?beta=true",
            ("/v1/messages/count_tokens", b"beta=true"),
        ),
        ("HEAD", "/ng-rollout/0-0/v1/messages", ("/v1/messages", b"")),
        ("PUT", "/ng-rollout/0-0/v1/messages", ("/v1/messages", b"")),
    ],
)
async def test_18_probes_reach_the_application_and_leave_nothing(
    capture: Capture, caplog: pytest.LogCaptureFixture, method: str, path: str, seen: tuple[str, bytes]
) -> None:
    headers = ((b"content-length", b"42"),)
    model = ScriptedModel(headers=headers)
    with caplog.at_level(logging.INFO):
        async with Exchange(capture.app(model), path, b"", method=method) as call:
            messages = await call.rest()
    assert [seen] == [(scope["path"], scope["query_string"]) for scope in model.scopes]
    assert [
        {"type": "http.response.start", "status": 200, "headers": list(headers)},
        {"type": "http.response.body", "body": b"", "more_body": False},
    ] == messages
    assert ([], []) == (capture.files(), [record.message for record in caplog.records if record.levelno > logging.INFO])


# ---- 19: receive() after the body


class Watchful:
    """Streams three deltas and watches meanwhile whether the client leaves."""

    def __init__(self) -> None:
        self.went_on = asyncio.Event()
        self.seen: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        watching = asyncio.ensure_future(receive())
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for text in "abc":
            await send({"type": "http.response.body", "body": delta(content=text), "more_body": True})
            going_on = asyncio.ensure_future(self.went_on.wait())
            await asyncio.wait({watching, going_on}, return_when=asyncio.FIRST_COMPLETED)
            going_on.cancel()
            if watching.done():
                self.seen.append(watching.result()["type"])
                return
        await send({"type": "http.response.body", "body": DONE, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        watching.cancel()


async def test_19_no_early_disconnect_is_made_up(capture: Capture) -> None:
    app = Watchful()
    app.went_on.set()
    async with capture.call(app) as call:
        await call.rest()
    assert ([], delta(content="a") + delta(content="b") + delta(content="c") + DONE) == (app.seen, call.body)
    assert ("abc", None) == (message(capture.record())["content"], capture.record()["error_category"])


async def test_19_a_real_disconnect_reaches_the_application(capture: Capture) -> None:
    app = Watchful()
    async with capture.call(app) as call:
        await call.message()
        await call.message()
        call.disconnect()
        await call.rest()
    assert ["http.disconnect"] == app.seen
    record = capture.record()
    assert ("a", True) == (
        message(record)["content"],
        record["error_category"] in ("cancelled", "stream_truncated"),
    )


# ---- 20: work after the answer

LAST = {"type": "http.response.body", "body": json.dumps(answer("chat", "hi")).encode(), "more_body": False}


@pytest.mark.parametrize("afterwards", [None, RuntimeError("background task")])
async def test_20_work_after_the_last_byte_is_no_part_of_the_call(
    capture: Capture, afterwards: RuntimeError | None
) -> None:
    go = asyncio.Event()
    script: list[Any] = [LAST, go, *([afterwards] if afterwards else [])]
    async with capture.call(ScriptedModel(script, headers=JSON, end=False)) as call:
        await call.message()
        assert LAST == await call.message()
        before = capture.record()
        assert (answer("chat", "hi"), None) == (before["response"], before["error_category"])
        go.set()
        if afterwards is None:
            await call.rest()
        else:
            with pytest.raises(RuntimeError, match="background task"):
                await call.rest()
    assert [before] == capture.records()


# ---- 21: repeated headers


@pytest.mark.parametrize(
    ("sessions", "recorded"),
    [((b"s1", b"s1"), "s1"), ((b"s1", b"s2"), None), ((b"", b"s1"), "s1"), ((), None)],
)
async def test_21_repeated_headers_stay_a_list(
    capture: Capture, sessions: tuple[bytes, ...], recorded: str | None
) -> None:
    headers = ((b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"X-Request-Id", b"7"), *JSON)
    request = (*JSON, *((b"x-session-id", session) for session in sessions))
    model = ScriptedModel([LAST], headers=headers, end=False)
    async with capture.call(model, headers=request) as call:
        start = await call.message()
        await call.rest()
    assert start is not None
    assert (list(headers), list(request)) == (start["headers"], model.scopes[0]["headers"])
    record = capture.record()
    assert ({"client_session_id": recorded} if recorded else {}) == {
        key: value for key, value in record.items() if key == "client_session_id"
    }


# ---- 25: twice in one chain


async def test_25_two_middlewares_in_one_chain_take_a_call_once(capture: Capture) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    model = ScriptedModel.of({**answer("chat", "hi"), "usage": usage})
    async with capture.call(capture.app(model)) as call:
        await call.rest()
    assert ["/v1/chat/completions"] == [scope["path"] for scope in model.scopes]
    assert "hi" == message(capture.record())["content"]
    assert (1, 9) == (capture.metrics()["num_calls"], capture.metrics()["tokens_in"])


# ---- 26: a stream that another task closes


async def deltas(never: asyncio.Event) -> AsyncIterator[bytes]:
    yield delta(content="a")
    yield delta(content="b")
    await never.wait()


async def test_26_streams_cut_off_from_another_task_leave_records_and_no_complaint(
    capture: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for piece in deltas(asyncio.Event()):
            await send({"type": "http.response.body", "body": piece, "more_body": True})

    async def one_call() -> None:
        async with capture.call(app) as call:
            for _ in range(3):
                await call.message()

    with caplog.at_level(logging.ERROR):
        await asyncio.gather(*(one_call() for _ in range(20)))
    assert [("ab", "cancelled")] * 20 == [
        (message(record)["content"], record["error_category"]) for record in capture.records()
    ]
    assert [] == [record.name for record in caplog.records]


# ---- 23, 27: whatever the environment and the caller say


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "20"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "1"),
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "10"),
        ("OTEL_TRACES_SAMPLER", "always_off"),
        ("OTEL_TRACES_SAMPLER", "parentbased_always_on"),
        ("OTEL_SDK_DISABLED", "true"),
    ],
)
async def test_23_27_nobodys_limit_or_sampler_reaches_the_record(
    capture: Capture, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    request = {"model": "m", "messages": [{"role": "user", "content": f"question {n}"} for n in range(200)]}
    traceparent = (b"traceparent", b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-00")
    headers = (*JSON, traceparent, (b"x-session-id", b"s1"))
    async with capture.call(
        ScriptedModel.of(answer("chat", "hi")), body=json.dumps(request).encode(), headers=headers
    ) as call:
        await call.rest()
    record = capture.record()
    assert (request, answer("chat", "hi"), "s1") == (
        record["request"],
        record["response"],
        record["client_session_id"],
    )
