"""The short way for regular streams gives what parsing every event gives."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_gym.dialects.chat import Chat
from otel_gym.dialects.messages import Messages
from otel_gym.sse import events

TEXTS = st.text() | st.sampled_from(['"', "\\", "\n", "\x7f", "\ud83d", "“", " ", '"content":"x"', '"}'])
ODD = st.sampled_from(
    [
        b'{"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"a\x01b"},"finish_reason":null}]}',
        b'{"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"\xff"},"finish_reason":null}]}',
        b'{"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]',
        b'{"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"finish_reason":null}]}',
        b'{"id":"c","model":"m","choices":[{"index":1,"delta":{"content":"other"},"finish_reason":null}]}',
        b'{"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"t","role":"tool"},"finish_reason":null}]}',
        b'{"id":"d","model":"m","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}',
        b'{"error":{"message":"no"}}',
        b"[DONE]",
        b"",
    ]
)


def chunk(text: str, ascii_only: bool) -> bytes:
    delta = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    encoded = json.dumps(delta, separators=(",", ":"), ensure_ascii=ascii_only)
    return encoded.encode("utf-8", "surrogatepass")


RENAMED = b'{"id":"d","model":"m","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}'


@given(st.lists(st.tuples(TEXTS, st.booleans()).map(lambda pair: chunk(*pair)) | ODD, max_size=12))
@example([chunk("", False), chunk("", False), RENAMED, chunk("", False)])
@example([chunk("", False), chunk("a", False), chunk("\ud83d", True), chunk("\ude00", True), chunk("b", False)])
@example([chunk("", False), chunk("a", False), chunk("\\", False), chunk('"', False), chunk("\\", False)])
def test_both_ways_agree_on_any_chat_stream(datas: list[bytes]) -> None:
    body = b"".join(b"data: " + data + b"\n\n" for data in datas)
    assert Chat().assemble(list(events(body))) == Chat().assemble(events(body))


DELTAS = st.sampled_from(
    [("text_delta", "text"), ("thinking_delta", "thinking"), ("input_json_delta", "partial_json"), ("odd_delta", "odd")]
)


def delta(kind: str, key: str, text: str, index: Any, name: str) -> bytes:
    payload = {"type": "content_block_delta", "index": index, "delta": {"type": kind, key: text}}
    encoded = json.dumps(payload, separators=(",", ":"), ensure_ascii=False)
    return f"event: {name}\ndata: {encoded}\n\n".encode("utf-8", "surrogatepass")


@given(
    st.lists(
        st.tuples(
            DELTAS,
            TEXTS,
            st.sampled_from([0, 0, 0, 1, None]),
            st.sampled_from(["content_block_delta"] * 4 + ["message_stop", "error", ""]),
        ).map(lambda drawn: delta(*drawn[0], drawn[1], drawn[2], drawn[3])),
        max_size=12,
    )
)
def test_both_ways_agree_on_any_messages_stream(wire: list[bytes]) -> None:
    body = b"".join(wire)
    assert Messages().assemble(list(events(body))) == Messages().assemble(events(body))


FRAME = b'{"a":1,"t":"%b","b":2}'


def texts_after(first: bytes, *following: bytes) -> list[str]:
    """What is read together behind the first event, whose text is "old"; the last of a run is read by itself."""
    stream = events(b"".join(b"data: " + data + b"\n\n" for data in (first, *following)))
    next(iter(stream))
    return stream.alike("t", "old")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (FRAME % b"new", ["new"]),
        (FRAME % b"", [""]),
        (FRAME % "ü “q”".encode(), ["ü “q”"]),
        (FRAME % rb"a\nb\"c\\", ['a\nb"c\\']),
        (FRAME % rb"\u00e9\"", ['é"']),
        (FRAME % rb"\ud83d", []),  # half of a letter, whose other half may be in the next event
        (b'{"a":2,"t":"new","b":2}', []),  # something else differs before the text
        (b'{"a":1,"t":"new","b":3}', []),  # or after it
        (FRAME % b'a","x":"b', []),  # another string in between
        (FRAME % b"a\nb", []),  # a raw control character: no JSON
        (FRAME % b"\xff", []),  # no UTF-8
        (FRAME % rb"\x", []),  # no escape
        (b'{"a":1,"t":","b":2}', []),  # before and after would overlap
    ],
)
def test_the_texts_of_events_like_the_last_one_are_read_together(data: bytes, expected: list[str]) -> None:
    assert expected == texts_after(FRAME % b"old", data, FRAME % b"last", b"[DONE]")


def test_letters_that_are_whole_in_no_event_are_not_joined_over_two() -> None:
    first, second = "€".encode()[:1], "€".encode()[1:]
    assert texts_after(FRAME % b"old", FRAME % first, FRAME % second, b"[DONE]") == []


def test_the_event_behind_a_run_is_the_next_one() -> None:
    wire = [FRAME % b"old", *[FRAME % b"x"] * 5000, FRAME % b"last", b"[DONE]"]
    stream = events(b"".join(b"data: " + data + b"\n\n" for data in wire))
    reading = iter(stream)
    next(reading)
    assert ["x"] * 5000 == stream.alike("t", "old")
    assert [FRAME % b"last", b"[DONE]"] == [event.data for event in reading]


def test_an_event_with_the_key_twice_is_no_pattern() -> None:
    data = b'{"t":"old","b":{"t":"old"}}'
    assert texts_after(data, data, data) == []


def test_events_that_stand_in_one_block_are_no_pattern() -> None:
    block = (FRAME % b"old") + b"\ndata: " + (FRAME % b"old")
    assert texts_after(block, FRAME % b"new", b"[DONE]") == []
