"""JSON as the capture format reads and writes it: what is special about large bodies."""

from __future__ import annotations

import orjson
import pytest

from otel_gym_jsonl import json_text

LARGE = 1 << 20
FILLING = b'"' + b"A" * LARGE + b'"'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"image":' + FILLING + b"}", True),
        (b'{"images":[' + b"{}," * 250 + FILLING + b"]}", True),
        (b'{"image":"A"}', False),  # small: whoever has it may keep it
        (b'{"images":[' + b"{}," * 254 + FILLING + b"]}", False),  # could be nested as deep
        (b'{"deep":' + b"[" * 260 + b"]" * 260 + b',"image":' + FILLING + b"}", False),
        (b'{"count":' + b"9" * 19 + b',"image":' + FILLING + b"}", False),  # may not fit 64 bits
        (b'{"half":"\\ud83d","image":' + FILLING + b"}", False),
        (b'{"odd":NaN,"image":' + FILLING + b"}", False),
    ],
)
def test_a_large_body_is_certain_to_be_storable_only_when_nothing_in_it_could_keep_it_from_that(
    body: bytes, expected: bool
) -> None:
    value, storable = json_text.read(body)
    assert expected == storable
    if storable:
        assert body == json_text.dumps(value)


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
