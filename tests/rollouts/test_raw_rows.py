from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.rollouts import raw_rows

SPACE = st.sampled_from(["", " ", "\t "])
VALUES = st.sampled_from(
    [
        "1.50",
        "-0.0",
        "1e400",
        "1E-7",
        "123456789012345678901234567890",
        "0.1000000000000000055",
        "NaN",
        "true",
        '"\\ud800"',
        '"a\\/\\u0041, \\"}{"',
        '"ä😀"',
        '[1.0, {"ng_perf": 1.00} ]',
        '{ "b":[[]],"b" : {"reward":-1e5}}',
    ]
)
KEYS = st.sampled_from(['"reward"', '"response"', '"a"', '"\\u0062"', '"ng_perf"', '"x, y"'])
MEMBERS = st.lists(st.tuples(SPACE, KEYS, SPACE, SPACE, VALUES, SPACE), max_size=6)


@given(MEMBERS, SPACE, st.sampled_from(["", "\n", " \r\n"]))
def test_only_the_changed_values_have_other_bytes(
    members: list[tuple[str, str, str, str, str, str]], inside: str, end: str
) -> None:
    def row(replacement: str | None, added: str) -> bytes:
        pieces = []
        for before, key, colon, gap, value, _ in members:
            shown = replacement if replacement is not None and key == '"ng_perf"' else value
            pieces.append(f"{before}{key}{colon}:{gap}{shown}")
        spaces = [member[-1] for member in members]
        if added and pieces:
            pieces[-1] += f",{added}"
        inner = ",".join(piece + space for piece, space in zip(pieces, spaces, strict=True))
        return ("{" + (inner or added + inside) + "}" + end).encode()

    line = row(None, "")
    known = any(key == '"ng_perf"' for _, key, *_ in members)
    changed = {"ng_perf": {"num_turns": 1}, "ng_trajectory": [1]}
    added = '"ng_trajectory":[1]' if known else '"ng_perf":{"num_turns":1},"ng_trajectory":[1]'
    assert row('{"num_turns":1}', added) == b"".join(raw_rows.replace(line, changed))
    assert line == b"".join(raw_rows.replace(line, {}))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "it begins with"),
        (b"[]", "it begins with"),
        (b"{oops", "Expecting property name"),
        (b'{"a": 1', "Expecting"),
        (b'{"a": "\xff"}', "decode"),
        (b"\xef\xbb\xbf{}", "it begins with"),
        ('{"a": 1}'.encode("utf-16"), "it begins with"),
        (b'{"a":' + b"[" * 100_000, "nested too deep|unexpected end"),
    ],
)
def test_what_is_no_row_is_refused(line: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        raw_rows.parse(line)


@pytest.mark.parametrize("line", [b"[]", b"{", b'{"a" 1}', b'{"a":1 "b":2}', b"{a:1}", b'{"a":1'])
def test_a_line_that_was_not_parsed_is_refused_too(line: bytes) -> None:
    with pytest.raises(ValueError):
        raw_rows.replace(line, {"b": 1})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": "ä"}, '{"a":"ä"}'.encode()),
        (2**70, b"1180591620717411303424"),
        ("\ud800", b'"\\ud800"'),
    ],
)
def test_a_value_that_orjson_refuses_is_written_all_the_same(value: object, text: bytes) -> None:
    assert text == raw_rows.encode(value)


def test_a_value_that_is_nested_too_deep_is_an_error() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="too deep"):
        raw_rows.encode(value)
