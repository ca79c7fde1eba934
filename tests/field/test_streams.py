"""Faults that people met elsewhere, about streams: inputs 1 to 13, 15 and 17 of the field page."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest

from otel_gym.testing import EVENT_STREAM, ScriptedModel
from tests.field.capture import DONE, Capture, chunk, delta, finish, message, wire

BOM = b"\xef\xbb\xbf"


def tool(index: Any = 0, **fields: Any) -> bytes:
    """A delta with one tool call; `index=...` leaves the index out."""
    call = {} if index is ... else {"index": index}
    name_and_arguments = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return delta(tool_calls=[{**call, **fields, "function": name_and_arguments}])


def called(id_: str | None, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


# ---- 1: a byte-order mark


@pytest.mark.parametrize("cut", [1, 2, 3])
async def test_1_a_byte_order_mark_costs_no_event(capture: Capture, cut: int) -> None:
    _, pieces = wire(1)
    assert pieces[0].startswith(BOM)
    record = await capture.play([pieces[0][:cut], pieces[0][cut:], *pieces[1:]])
    assert ("one two", None) == (message(record)["content"], record["error_category"])


async def test_1_a_later_byte_order_mark_is_data(capture: Capture) -> None:
    text = "x\ufeffy"
    record = await capture.play([b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text.encode(), DONE])
    assert text == message(record)["content"]


# ---- 2: mixed line ends

A, B = delta(content="a").rstrip(), chunk({"delta": {"content": "b"}, "finish_reason": "stop"}).rstrip()


@pytest.mark.parametrize(
    "pieces",
    [
        wire(2)[1],
        [A + b"\n\r\n", B + b"\r\r\n", DONE],
        [A + b"\r", b"\n\r", b"\n" + B + b"\r\n\r\n", DONE],
        [A + b"\n\r", b"\n" + B + b"\n\n", DONE],
        [A + b"\r\r", B + b"\r\n", b"\n", DONE],
    ],
)
async def test_2_line_ends_may_alternate_and_be_cut(capture: Capture, pieces: list[bytes]) -> None:
    record = await capture.play(pieces)
    assert ("ab", None) == (message(record)["content"], record["error_category"])


@pytest.mark.parametrize("end", [b"\n\n", b"\r\r", b"\r\n\r\n", b"\n\r\n", b"\r\n\n", b"\n\r", b"\r\r\n"])
async def test_2_a_terminal_closed_by_mixed_line_ends_is_held_until_it_is_durable(capture: Capture, end: bytes) -> None:
    never = asyncio.Event()
    async with capture.call(ScriptedModel([A + b"\n\n", b"data: [DONE]" + end, never])) as call:
        while b"[DONE]" not in call.body:
            assert [] == capture.records()
            await call.message()
        assert ("a", None) == (message(capture.record())["content"], capture.record()["error_category"])


# ---- 3: an unreadable data line


async def test_3_an_unreadable_data_line_costs_only_itself(capture: Capture) -> None:
    record = await capture.play(wire(3)[1])
    assert ("hi", None) == (message(record)["content"], record["error_category"])


# ---- 4: what comes after the terminal event


async def test_4_the_terminal_event_does_not_wait_for_an_application_that_lingers(capture: Capture) -> None:
    dialect, (completed, *late) = wire(4)
    go = asyncio.Event()
    async with capture.call(ScriptedModel([completed, go, *late]), dialect) as call:
        await call.message()
        await call.message()
        assert completed == call.body
        at_the_cut = capture.record()
        go.set()
        assert [*late, b""] == [message["body"] for message in await call.rest()]
    assert [at_the_cut] == capture.records()
    assert ({"id": "r1", "status": "completed", "output": []}, None) == (
        at_the_cut["response"],
        at_the_cut["error_category"],
    )
    assert completed.decode() == at_the_cut["response_raw"]


# ---- 5: an error that says 200


async def test_5_an_error_in_a_200_answer_without_choices_is_kept_as_it_is(capture: Capture) -> None:
    body = {"code": "daily_quota", "message": "try again tomorrow"}
    async with capture.call(ScriptedModel.of(body)) as call:
        await call.rest()
    record, model_call, metrics = capture.record(), capture.model_call(), capture.metrics()
    assert (body, None) == (record["response"], record["error_category"])
    assert [None] * 4 == [model_call[key] for key in ("tokens_in", "tokens_out", "tokens_total", "finish_reason")]
    assert (1, None, None) == (metrics["num_calls"], metrics["tokens_in"], metrics["tokens_out"])


# ---- 6 to 9: tool calls


async def test_6_a_stream_that_ends_inside_arguments_is_truncated_and_no_token_limit(capture: Capture) -> None:
    record = await capture.play(wire(6)[1])
    assert "stream_truncated" == record["error_category"]
    assert [called("call_1", "write_file", "{")] == message(record)["tool_calls"]
    assert None is record["response"]["choices"][0]["finish_reason"]


@pytest.mark.parametrize("index", [None, ...])
async def test_7_without_an_index_a_new_id_opens_a_call_and_no_id_goes_on(capture: Capture, index: Any) -> None:
    pieces = [
        tool(index, id="A", name="f", arguments='{"x":'),
        tool(index, arguments="1}"),
        tool(index, id="B", name="g", arguments="{}"),
        finish("tool_calls"),
        DONE,
    ]
    record = await capture.play(pieces)
    assert ([called("A", "f", '{"x":1}'), called("B", "g", "{}")], None) == (
        message(record)["tool_calls"],
        record["error_category"],
    )


async def test_7_the_wire_bodies_of_the_page_say_the_same(capture: Capture) -> None:
    record = await capture.play(wire(7)[1])
    assert [called("A", "f", '{"x":1}'), called("B", "g", "{}")] == message(record)["tool_calls"]


async def test_8_a_name_repeated_in_every_delta_stays_itself(capture: Capture) -> None:
    record = await capture.play(wire(8)[1])
    assert [called("A", "fetch_doc", '{"p":1}')] == message(record)["tool_calls"]


async def test_8_a_name_in_pieces_is_joined(capture: Capture) -> None:
    pieces = [tool(id="A", name="list_", arguments=""), tool(name="users", arguments="{}"), finish("tool_calls"), DONE]
    assert [called("A", "list_users", "{}")] == message(await capture.play(pieces))["tool_calls"]


@pytest.mark.parametrize(("fields", "id_"), [({}, None), ({"id": ""}, "")])
async def test_9_a_tool_call_whose_id_never_comes_is_kept(
    capture: Capture, fields: dict[str, str], id_: str | None
) -> None:
    record = await capture.play([tool(name="get_time", arguments="{}", **fields), finish("tool_calls"), DONE])
    assert [called(id_, "get_time", "{}")] == message(record)["tool_calls"]
    assert "tool_calls" == record["response"]["choices"][0]["finish_reason"]


async def test_9_the_wire_bodies_of_the_page_say_the_same(capture: Capture) -> None:
    assert [called(None, "get_time", "{}")] == message(await capture.play(wire(9)[1]))["tool_calls"]


# ---- 10, 11: chunks about something else


async def test_10_chunks_of_metadata_neither_rename_nor_empty_the_answer(capture: Capture) -> None:
    record = await capture.play(wire(10)[1])
    response = record["response"]
    assert ("c1", "m", "Hi", "stop", None) == (
        response["id"],
        response["model"],
        message(record)["content"],
        response["choices"][0]["finish_reason"],
        record["error_category"],
    )


USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


async def test_11_usage_inside_the_choice_is_taken(capture: Capture) -> None:
    record = await capture.play(wire(11)[1])
    assert USAGE == record["response"]["usage"]
    assert (7, 5) == (capture.model_call()["tokens_in"], capture.model_call()["tokens_out"])


@pytest.mark.parametrize("first", [True, False])
async def test_11_usage_at_the_top_wins_wherever_it_stands(capture: Capture, first: bool) -> None:
    inside = chunk({"delta": {}, "finish_reason": "stop", "usage": USAGE})
    top_usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    top = b"data: " + json.dumps({"id": "c1", "choices": [], "usage": top_usage}).encode() + b"\n\n"
    order = [top, inside] if first else [inside, top]
    assert top_usage == (await capture.play([delta(content="hi"), *order, DONE]))["response"]["usage"]


async def test_11_usage_inside_a_vendors_object_is_nobodys(capture: Capture) -> None:
    last = chunk({"delta": {}, "finish_reason": "stop"}, x_groq={"id": "r", "usage": USAGE})
    record = await capture.play([delta(content="hi"), last, DONE])
    assert "usage" not in record["response"]
    assert (None, None) == (capture.model_call()["tokens_in"], capture.model_call()["tokens_out"])


# ---- 12, 13: the other dialects


async def test_12_all_that_a_message_delta_says_is_kept(capture: Capture) -> None:
    dialect, pieces = wire(12)
    record = await capture.play(pieces, dialect)
    assert {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": "refusal",
        "stop_details": {"type": "refusal", "category": "c", "explanation": "no"},
        "usage": {"input_tokens": 40, "output_tokens": 0},
    } == record["response"]
    assert None is record["error_category"]


async def test_13_an_envelope_without_an_output_list_gets_one(capture: Capture) -> None:
    dialect, pieces = wire(13)
    record = await capture.play(pieces, dialect)
    content = [{"type": "output_text", "text": "par"}]
    item = {"type": "message", "id": "m1", "role": "assistant", "status": "in_progress", "content": content}
    assert {"id": "r1", "status": "in_progress", "model": "m", "output": [item]} == record["response"]
    assert "stream_truncated" == record["error_category"]


async def test_13_a_completed_envelope_stands_for_itself(capture: Capture) -> None:
    dialect, pieces = wire(13)
    envelope = {"id": "r1", "status": "completed", "model": "m", "output": [{"type": "message", "id": "m1"}]}
    data = json.dumps({"type": "response.completed", "response": envelope}).encode()
    record = await capture.play([*pieces, b"event: response.completed\ndata: " + data + b"\n\n"], dialect)
    assert (envelope, None) == (record["response"], record["error_category"])


# ---- 15: halves of a character


async def test_15_the_halves_of_a_character_are_joined(capture: Capture) -> None:
    record = await capture.play(wire(15)[1])
    assert [called("A", "say", '{"t":"\U0001f680"}')] == message(record)["tool_calls"]
    assert None is record["error_category"]


async def test_15_a_half_that_stays_alone_becomes_a_replacement_character(capture: Capture) -> None:
    first, _, *rest = wire(15)[1]
    record = await capture.play([first, *rest])
    assert [called("A", "say", '{"t":"\ufffd')] == message(record)["tool_calls"]


# ---- 17: a header and a body that disagree

GZIP = ((b"content-encoding", b"gzip"),)


async def test_17_a_body_that_is_not_encoded_as_its_header_says_is_read_as_it_is(capture: Capture) -> None:
    never = asyncio.Event()
    model = ScriptedModel([delta(content="hi"), DONE, never], headers=(*EVENT_STREAM, *GZIP))
    async with capture.call(model) as call:
        start = await call.message()
        assert start is not None
        assert [*EVENT_STREAM, *GZIP] == start["headers"]
        while DONE not in call.body:
            assert [] == capture.records()
            await call.message()
        assert ("hi", None) == (message(capture.record())["content"], capture.record()["error_category"])


async def test_17_an_encoding_that_no_header_names_is_not_guessed(capture: Capture) -> None:
    record = await capture.play([gzip.compress(delta(content="hi") + DONE)])
    assert (None, "stream_truncated") == (record["response"], record["error_category"])


async def test_17_the_terminal_of_an_encoded_stream_is_held_until_it_is_durable(capture: Capture) -> None:
    never = asyncio.Event()
    data = gzip.compress(delta(content="hi") + DONE)
    pieces = [data[i : i + 7] for i in range(0, len(data), 7)]
    async with capture.call(ScriptedModel([*pieces, never], headers=(*EVENT_STREAM, *GZIP))) as call:
        while data != call.body:
            await call.message()
        assert ("hi", None) == (message(capture.record())["content"], capture.record()["error_category"])


# ---- rows 28 and 29 of divergences.md, which have no case


async def test_two_data_lines_that_are_an_object_each_are_two_events(capture: Capture) -> None:
    a, b = delta(content="a").rstrip(), delta(content="b").rstrip()
    record = await capture.play([a + b"\n" + b + b"\n\n", DONE])
    assert ("ab", None) == (message(record)["content"], record["error_category"])


@pytest.mark.parametrize("dialect", ["responses", "chat", "messages"])
async def test_a_field_named_error_with_an_object_ends_the_stream(capture: Capture, dialect: str) -> None:
    never = asyncio.Event()
    async with capture.call(ScriptedModel([b'error: {"message":"gone"}\n\n', never]), dialect) as call:
        await call.message()
        await call.message()
        assert ("upstream_error", None) == (capture.record()["error_category"], capture.record()["response"])
