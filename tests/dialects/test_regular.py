"""The short way for regular streams gives what parsing every event gives."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_gym.dialects.chat import Chat
from otel_gym.dialects.regular import RegularText
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
def test_both_ways_agree_on_any_stream(datas: list[bytes]) -> None:
    body = b"".join(b"data: " + data + b"\n\n" for data in datas)
    short = Chat().assemble(events(body))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RegularText, "text", lambda self, data: None)
        careful = Chat().assemble(events(body))
    assert short == careful


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a":1,"t":"new","b":2}', "new"),
        (b'{"a":1,"t":"","b":2}', ""),
        ('{"a":1,"t":"ü “q”","b":2}'.encode(), "ü “q”"),
        (b'{"a":2,"t":"new","b":2}', None),  # something else differs before the text
        (b'{"a":1,"t":"new","b":3}', None),  # or after it
        (b'{"a":1,"t":"a\\nb","b":2}', None),  # an escape
        (b'{"a":1,"t":"a","x":"b","b":2}', None),  # another string in between
        (b'{"a":1,"t":"a\nb","b":2}', None),  # a raw control character: no JSON
        (b'{"a":1,"t":"\xff","b":2}', None),  # no UTF-8
        (b'{"a":1,"t":","b":2}', None),  # before and after would overlap
    ],
)
def test_the_text_of_an_event_like_the_learned_one_is_found(data: bytes, expected: Any) -> None:
    regular = RegularText("t")
    assert regular.text(data) is None
    regular.learn(b'{"a":1,"t":"old","b":2}', "old")
    assert regular.text(data) == expected


def test_an_event_with_the_key_twice_is_no_pattern() -> None:
    regular = RegularText("t")
    data = b'{"t":"old","b":{"t":"old"}}'
    regular.learn(data, "old")
    assert regular.text(data) is None
