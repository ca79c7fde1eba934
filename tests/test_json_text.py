"""JSON as the capture format reads and writes it: what is special about large bodies."""

from __future__ import annotations

import json
from collections.abc import Callable

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym_jsonl import json_text

LARGE = 1 << 20
FILLING = b'"' + b"A" * LARGE + b'"'


@pytest.mark.parametrize(
    "body",
    [
        b'{"image":' + FILLING + b"}",
        b'{"images":[' + b"{}," * 250 + FILLING + b"]}",
        b' {"image": ' + FILLING + b"}\n",
        b'{"images":[' + b"{}," * 300 + FILLING + b"]}",  # could be nested too deep to be written
        b'{"count":' + b"9" * 18 + b',"image":' + FILLING + b"}",
        b'{"odd":NaN,"image":' + FILLING + b"}",
        b'{"a":1,"b":"\\u00e9"}',
        b'{"deep":' + b"[" * 252 + b"]" * 252 + b',"image":' + FILLING + b"}",
        b'{"deep":' + b"[" * 252 + b"]" * 252 + b"}",
        b'{"deep":' + b"[" * 252 + b"]" * 252 + b',"numbers":[' + b"1," * LARGE + b"0]}",
        b'{"n":1.0,"n":2e3}',
        b'{"same":' + FILLING + b',"n":1,"same":' + FILLING + b"}",
        b'{"same":"short","n":1,"same":' + FILLING + b"}",
        b"{" + FILLING + b":1," + FILLING + b":2}",
        b'{"numbers":[' + b"1," * LARGE + b'0],"after":"x"}',
        b'{"numbers":[' + b"1," * LARGE + b'0],"image":' + FILLING * 1 + b"}",
        b'{"escaped":"a\\"' + b"A" * LARGE + b'\\n","image":' + FILLING + b"}",
        b'{"control":' + FILLING + b',"del":"\x7f' + b"A" * LARGE + b'"}',
        b'{"letters":"' + "é".encode() * LARGE + b'","image":' + FILLING + b"}",
        b'{"words":"\x7fa long string of otel-gym\x7f","image":' + FILLING + b"}",
        b'{"quotes":[' + b'"a",' * (1 << 14) + b'"b"],"image":' + FILLING + b"}",
    ],
)
def test_an_object_is_stored_as_json_reads_it(body: bytes) -> None:
    value, stored, text = json_text.stored_object(body)
    expected = json.loads(body)
    assert (stored, text) == (json_text.dumps(expected), "")
    assert repr(expected) == repr(json_text.loads(body))  # as text, NaN equals itself
    assert value is not None
    assert list(expected) == list(value)


@pytest.mark.parametrize(
    "body",
    [
        b'{"deep":' + b"[" * 260 + b"]" * 260 + b',"image":' + FILLING + b"}",
        b'{"deep":' + b"[" * 260 + b"]" * 260 + b"}",
        b'{"deep":' + b"[" * 252 + b"[1]" + b"]" * 252 + b',"image":' + FILLING + b"}",
        b'{"deep":' + b"[" * 252 + b"[1]" + b"]" * 252 + b"}",
        b'{"deep":' + b"[" * 252 + b"[1]" + b"]" * 252 + b',"numbers":[' + b"1," * LARGE + b"0]}",
        b'{"count":' + b"9" * 20 + b',"image":' + FILLING + b"}",
        b'{"count":' + b"9" * 20 + b"}",
        b'{"half":"\\ud83d","image":' + FILLING + b"}",
        b'{"half":"\\ud83d"}',
        b"[" + FILLING + b"]",
        b"[1]",
        FILLING,
        FILLING[:-1],
        b'{"image":' + FILLING + b',"cut":' + FILLING[:-1],
        b'{"image":' + FILLING + b"} and more",
        b'{"control":"\n' + FILLING[1:] + b"}",
        b"\xff" + FILLING,
        b"",
    ],
)
def test_what_is_no_object_that_can_be_stored_stays_text(body: bytes) -> None:
    assert (None, None, json_text.as_text(body)) == json_text.stored_object(body)


@pytest.mark.parametrize("size", [0, 1, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE + 7])
@pytest.mark.parametrize("letters", ["ab", '"\\', "\n\x01", "é漢🎉"])
def test_a_text_in_pieces_is_the_text_in_one(letters: str, size: int) -> None:
    text = (letters * (size // len(letters) + 1))[:size]
    assert orjson.dumps(text) == b"".join(json_text.dumps_text(text))


def test_a_long_number_is_found_wherever_slices_of_a_large_body_meet() -> None:
    for start in (0, (1 << 18) - 10, (1 << 20) - 1, 2 * LARGE):
        body = bytearray(b"x" * (2 * LARGE + 19))
        assert not json_text.has_long_number(bytes(body))
        body[start : start + 19] = b"1" * 19
        assert json_text.has_long_number(bytes(body))


def test_bodies_of_any_depth_are_stored_or_stay_text() -> None:
    for levels in range(1, 300):
        for body in (b'{"a":' * levels + b"1" + b"}" * levels, b'{"a":' + b"[" * levels + b"1" + b"]" * levels + b"}"):
            depth = levels + body.startswith(b'{"a":[')
            assert (json_text.stored_object(body)[1] == body) == (depth <= 253)


PIECES = st.sampled_from(
    [FILLING, FILLING, b'"key"', b'"k\\"ey"', b":", b",", b"{", b"}", b"[", b"]", b"1", b" ", b"\\", b'"', b"null"]
)


@given(st.lists(PIECES, max_size=12))
def test_bodies_of_long_strings_are_stored_as_any_other(pieces: list[bytes]) -> None:
    body = b'{"first":' + FILLING + b"".join(pieces) + b"}"
    try:
        expected = json.loads(body)
    except ValueError:
        assert json_text.stored_object(body)[1] is None
        with pytest.raises(ValueError):
            json_text.loads(body)
    else:
        assert json_text.dumps(expected) == json_text.stored_object(body)[1]
        assert expected == json_text.loads(body)


TEXTS = st.sampled_from(["", "short", "é", "A" * (LARGE + 1), 'é"\n' * LARGE])
VALUES = st.recursive(
    st.one_of(st.none(), st.integers(0, 9), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=4)),
    max_leaves=8,
)


@given(VALUES, st.sampled_from([0, LARGE]))
def test_a_value_with_long_texts_is_written_as_any_other(value: object, size: int) -> None:
    assert orjson.dumps(value) == json_text.dumps_read(value, size)


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("rest", [[0] * 5000, nested(250)])
def test_a_value_of_many_parts_or_levels_is_written_as_any_other(rest: object) -> None:
    value = {"image": "A" * 2 * LARGE, "rest": rest, "last": "B" * 2 * LARGE}
    assert orjson.dumps(value) == json_text.dumps_read(value, LARGE)


@pytest.mark.parametrize("write", [json_text.dumps_body, json_text.dumps_read])
@pytest.mark.parametrize("size", [0, LARGE])
def test_a_body_leaves_room_for_the_record_around_it(write: Callable[[object, int], bytes], size: int) -> None:
    for others in ([], [0] * 5000):
        body = [nested(252), *others]
        assert orjson.dumps({"request": body}) == b'{"request":' + write(body, size) + b"}"
        with pytest.raises(ValueError, match=r"."):
            write([nested(253), *others], size)


@pytest.mark.parametrize("value", ["\ud83d" + "A" * 2 * LARGE, 2**70, nested(2000)])
def test_what_cannot_be_stored_is_refused_be_it_large_or_small(value: object) -> None:
    for size in (0, LARGE):
        with pytest.raises(ValueError):
            json_text.dumps_read([value], size)
