"""A body of server-sent events, read as events."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.sse import Event, events

LINES = st.sampled_from(
    [
        b"",
        b"data: 1",
        b"data:2",
        b"data:  3 ",
        b"data",
        b"event: x ",
        b"event:y",
        b"event",
        b": c",
        b":",
        b"id: 7",
        b"x",
        b'error: {"e":1}',
        b"error: no",
        b'data: {"a":1}',
        b'data: {"b":',
        b"data: 2}",
        b"data: [DONE]",
        b" data: 4",
        "data: \u2028\u0085\u001c".encode(),
        b"\xef\xbb\xbfdata: 5",
        b"data: \xff",
        b"data: 1234567890123456789012",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def plain(event: Event) -> tuple[str, bytes, bytes | None]:
    return event.name, event.data, event.error


def read_line_by_line(body: bytes) -> list[list[bytes]]:
    """The blocks of lines that an event is made of, as the standard reads them."""
    blocks: list[list[bytes]] = [[]]
    for line in re.split(rb"\r\n|\n|\r", body.removeprefix(b"\xef\xbb\xbf")):
        if line:
            blocks[-1].append(line)
        else:
            blocks.append([])
    return blocks


def fields(block: list[bytes], name: bytes) -> list[bytes]:
    values = []
    for line in block:
        if line == name or line.startswith(name + b":"):
            value = line[len(name) + 1 :]
            values.append(value[1:] if value.startswith(b" ") else value)
    return values


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", []),
        (b"data: a\n\n", [("", b"a", None)]),
        (b"data:a\n\ndata:  b\n\n", [("", b"a", None), ("", b" b", None)]),
        (b"data: a\n\ndata: b", [("", b"a", None), ("", b"b", None)]),
        (b"event: x \ndata: a\n\n", [("x", b"a", None)]),
        (b"data: a\nevent:x\n\n", [("x", b"a", None)]),
        (b"event: x\n\n", [("x", b"", None)]),
        (b": c\n\n:\n\n\n\n", []),
        (b": c\ndata: a\n: d\n\n", [("", b"a", None)]),
        (b"id: 1\nretry: 5\n\n", []),
        (b"data: a\ndata:  b\n\n", [("", b"a\n b", None)]),
        (b"data: a\n\r\ndata: b\r\rdata: c\r\n\r\ndata: d\r\n\n", [("", c, None) for c in (b"a", b"b", b"c", b"d")]),
        (b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", [("", b"a", None)]),
        (b'error: {"code":500}\n\n', [("", b"", b'{"code":500}')]),
        (b'error: {"code":\nerror: 500}\n\n', [("", b"", b'{"code":\n500}')]),
        (b"error: oops\n\nerror: [1]\n\n", []),
        (b'data: a\nerror: {"code":500}\n\n', [("", b"a", b'{"code":500}')]),
        (b"EVENT: x\nDATA: a\n\n", []),
    ],
)
def test_a_body_is_read_as_the_standard_says_and_a_little_more(body: bytes, expected: list[Any]) -> None:
    assert expected == [plain(event) for event in events(body)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([b'data: {"a":1}', b'data: {"b":2}'], [("", b'{"a":1}'), ("", b'{"b":2}')]),
        (
            [b'data: {"a":1}', b"data:", b'data: {"b":2}', b'data: {"c":3}'],
            [("", b'{"a":1}'), ("", b'{"b":2}'), ("", b'{"c":3}')],
        ),
        ([b'data: {"a":1}', b"data: [DONE]"], [("", b'{"a":1}'), ("", b"[DONE]")]),
        ([b"event: x", b'data: {"a":1}', b"event: y", b'data: {"b":2}'], [("x", b'{"a":1}'), ("y", b'{"b":2}')]),
        ([b'data: {"a":1}', b'data: {"b":2}', b"event: x"], [("x", b'{"a":1}'), ("x", b'{"b":2}')]),
        ([b'data: {"a":', b"data: 1}"], [("", b'{"a":\n1}')]),
        ([b'data: {"a":1}', b"data: 2"], [("", b'{"a":1}\n2')]),
        ([b'data: {"a":1}', b"data: {broken"], [("", b'{"a":1}\n{broken')]),
    ],
)
def test_data_lines_that_are_an_object_each_and_no_json_together_are_an_event_each(
    lines: list[bytes], expected: list[tuple[str, bytes]]
) -> None:
    assert expected == [(event.name, event.data) for event in events(b"\n".join(lines) + b"\n\n")]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a":1}', {"a": 1}),
        (b"", None),
        (b"[DONE]", None),
        (b"{broken", None),
        (b"null", None),
        (b'"a\xffb"', "a\ufffdb"),
        (b'"\\ud83d"', "\ud83d"),
        (b"12345678901234567890123", 12345678901234567890123),
        (b"[" * 100_000, None),
    ],
)
def test_a_payload_is_read_leniently_and_never_raises(data: bytes, expected: Any) -> None:
    assert expected == Event("", data).payload
    assert [expected] == [event.payload for event in events(b"data: " + data + b"\n\n")]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Event("x", b'{"type":"y"}'), "x"),
        (Event("", b'{"type":"y"}'), "y"),
        (Event("message", b'{"type":"y"}'), "y"),
        (Event("", b'{"type":1}'), ""),
        (Event("", b"[]"), ""),
        (Event("message", b"{}"), ""),
    ],
)
def test_an_event_is_what_its_line_says_or_else_its_type(event: Event, expected: str) -> None:
    assert expected == event.kind


@given(st.lists(st.tuples(LINES, ENDS), max_size=30), st.booleans())
def test_every_mixture_of_line_ends_gives_the_events_that_a_reader_of_lines_finds(
    lines: list[tuple[bytes, bytes]], with_mark: bool
) -> None:
    body = b"\xef\xbb\xbf" * with_mark + b"".join(line + end for line, end in lines) + b"\n\n"
    expected: list[bytes] = []
    for block in read_line_by_line(body):
        expected += fields(block, b"data")
    got = [line for event in events(body) for line in event.data.split(b"\n")]
    # Empty data lines between objects that are an event each are the only ones that go.
    assert [line for line in expected if line] == [line for line in got if line]


@given(st.lists(LINES, max_size=30), st.lists(ENDS, min_size=1, max_size=8))
def test_the_kind_of_line_end_changes_nothing(lines: list[bytes], ends: list[bytes]) -> None:
    # A CR before an empty line that ends with LF would be one line end with it.
    mixed = b""
    for position, line in enumerate(lines):
        end = ends[position % len(ends)]
        if mixed.endswith(b"\r") and not line and end == b"\n":
            end = b"\r\n"
        mixed += line + end
    expected = [plain(event) for event in events(b"".join(line + b"\n" for line in lines))]
    assert expected == [plain(event) for event in events(mixed)]


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_raise(body: bytes) -> None:
    for event in events(body):
        assert event.kind in (event.name, event.type)


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        (b'event: response.completed\ndata: {"type":"response.completed","resp', []),  # cut: it never came
        (b'data: {"choices":[{"delta":{"content":"h', []),
        (b'event: response.completed\ndata: {"type":"response.completed"}', ["response.completed"]),
        (b"event: message_stop", ["message_stop"]),
        (b"data: [DONE]", [""]),
    ],
)
def test_a_last_event_counts_without_its_blank_line_unless_it_was_cut(rest: bytes, expected: list[str]) -> None:
    body = b'data: {"a":1}\n\n' + rest
    assert [event.name for event in events(body)][1:] == expected
    assert [event.name for event in events(rest)] == expected
