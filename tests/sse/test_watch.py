"""Which chunk of a passing stream completes its end, and which holds its first token."""

from __future__ import annotations

import re
import tracemalloc
from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.dialects.chat import Chat
from otel_gym.sse import Event, FirstToken, TerminalWatch, events
from otel_gym.sse.watch import PARSED_ON_LOOP_BYTES

BLOCKS = st.sampled_from(
    [
        "data: {}",
        'data: {"error":null}',
        'data: {"choices":[{"delta":{"content":"[DONE] error"}}]}',
        ": error",
        ":",
        "data: [DONE]",
        "data:[DONE] ",
        'data: {"error":{}}',
        'data: {"error":\ndata: "x"}',
        "event: error",
        "event: no error",
        "event: error\ndata: {}",
        'error: {"code":1}',
        "error: no",
        'data: {"x":1}\ndata: {"error":"e"}',
        "data: [DONE]\nid: 1",
        'data: {"x":1}\ndata: [DONE]',
        "data: [DO",
        "NE]",
        "",
        "\ufeffdata: [DONE]",
        "x: \ud7ff",
        "event: x\ndata: [DONE]",
    ]
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Streams whose line ends are chosen one by one."""
    lines = "\n\n".join(draw(st.lists(BLOCKS, max_size=8))).split("\n")
    text = draw(st.sampled_from(["", "\ufeff"])) + "".join(line + draw(ENDS) for line in lines)
    return (text + draw(st.sampled_from(["", "\n", "\r", "\r\n"]))).encode()


@st.composite
def cut_bodies(draw: st.DrawFn) -> list[bytes]:
    body = draw(bodies())
    cuts = sorted(draw(st.sets(st.integers(0, len(body)), max_size=12)))
    return [body[start:end] for start, end in pairwise([0, *cuts, len(body)])]


def end_of_stream(body: bytes, dialect: Chat) -> int | None:
    """How many bytes of the body complete its first terminal event; slowly, a byte at a time."""
    for length in range(1, len(body) + 1):
        # What follows a blank line is of no matter to the events before it.
        end = re.search(rb"(?:^|\n|\r)(?:\n|\r\n|\r)$", body[:length])
        if end is None or (body[:length].endswith(b"\r\n") and not re.search(rb"(?:\n|\r)\r\n$", body[:length])):
            continue
        if not any(dialect.terminal(event) for event in events(body[:length])):
            continue
        waits = re.search(rb"\r\n\r$", body[:length]) is not None
        if not waits:
            return length
        return length + 1 if length < len(body) else None
    return None


def chunk_of_true(chunks: list[bytes]) -> int | None:
    watch = TerminalWatch(Chat())
    found = []
    for position, chunk in enumerate(chunks):
        verdict = watch.feed(chunk)
        if verdict is None:
            verdict = watch.judge()
        if verdict:
            found.append(position)
    assert len(found) <= 1
    return found[0] if found else None


@given(cut_bodies())
def test_the_chunk_with_the_end_of_the_first_terminal_event_is_found_however_the_bytes_are_cut(
    chunks: list[bytes],
) -> None:
    length = end_of_stream(b"".join(chunks), Chat())
    expected = None
    if length is not None:
        ends = [sum(map(len, chunks[: position + 1])) for position in range(len(chunks))]
        expected = next(position for position, end in enumerate(ends) if end >= length)
    assert expected == chunk_of_true(chunks)


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([b"data: [DONE]\n\n"], 0),
        ([b"data: {}\n\n", b"data: [DONE]\n\n"], 1),
        ([b"data: {}\n\ndata: [DONE]\n\ndata: {}\n\n", b"data: [DONE]\n\n"], 0),
        ([b"data: [DO", b"NE]", b"\n", b"\n"], 3),
        ([b"data: [DONE]\r", b"\r"], 1),
        ([b"data: [DONE]\r\n", b"\r", b"\n"], 2),
        ([b"data: [DONE]\r\n\r", b": late\n"], 1),
        ([b"data: [DONE]\n", b"\r", b"\n"], 1),
        ([b"data: [DONE]\r", b"\n", b"\n"], 2),
        ([b"data: [DONE]"], None),
        ([b"\xef", b"\xbb\xbfdata: [DONE]\n\n"], 1),
        ([b"\n\n\n", b"data: [DONE]\n\n"], 1),
        ([b'data: {"error":{"message":"x"}}\n\n'], 0),
        ([b"event: error\n\n"], 0),
        ([b'error: {"code":1}\n\n'], 0),
        ([b'data: {"choices":[{"delta":{"content":"data: [DONE]\\n\\n error"}}]}\n\n'], None),
        ([b"", b"data: [DONE]\n", b"", b"\n"], 3),
    ],
)
def test_a_terminal_event_is_complete_with_its_blank_line(chunks: list[bytes], expected: int | None) -> None:
    assert expected == chunk_of_true(chunks)


@pytest.mark.parametrize("step", [1, 7, 4096, 10**6])
def test_a_long_event_is_left_to_judge_and_the_events_after_it_too(step: int) -> None:
    long = b'data: {"error":null,"x":"' + b"A" * PARSED_ON_LOOP_BYTES + b'"}\n\n'
    watch = TerminalWatch(Chat())
    verdicts = [watch.feed(long[start : start + step]) for start in range(0, len(long), step)]
    assert [None] == [verdict for verdict in verdicts if verdict is not False]
    assert not watch.judge()
    assert watch.feed(long + b"data: [DONE]\n\n") is None
    assert watch.judge()
    assert watch.feed(b"data: [DONE]\n\n") is False


def test_a_chunk_of_many_suspects_is_not_parsed_on_the_loop() -> None:
    suspect = b'data: {"choices":[{"delta":{"content":"error"}}]}\n\n'
    assert TerminalWatch(Chat()).feed(suspect * 10) is False
    assert TerminalWatch(Chat()).feed(suspect * 1000) is None


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        (b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n', True),
        (b'data: {"choices":[{"delta":{"content":"an error, [DONE]"}}]}\n\n', True),
        (b"data: {}\n\ndata: {}\n\n", True),
        (b"data: [DONE]\n\n", False),
        (b'data: {"error":{"message":"x"}}\n\n', False),
        (b"event: error\ndata: {}\n\n", False),
        (b"data: error\n\ndata: [DONE]\n\n", False),
        (b"data: error\r\rdata: {}\n\n", False),
        (b"data: {}\n", False),
        (b'data: "' + b"error" * PARSED_ON_LOOP_BYTES + b'"\n\n', False),
        (b"", False),
    ],
)
def test_whole_events_of_no_interest_pass_once_an_event_has_ended(chunk: bytes, expected: bool) -> None:
    watch = TerminalWatch(Chat())
    assert not watch.passes(chunk)
    watch.feed(b"data: {}\n\n")
    assert expected == watch.passes(chunk)
    watch.feed(b"data: {")
    assert not watch.passes(chunk)


def test_bytes_that_come_while_an_event_waits_for_judgement_are_not_lost() -> None:
    watch = TerminalWatch(Chat())
    assert watch.feed(b'data: {"error":null,"x":"' + b"A" * PARSED_ON_LOOP_BYTES + b'"}\n\n') is None
    assert watch.feed(b"data: [DONE]") is None
    assert not watch.judge()
    assert not watch.judge()
    assert watch.feed(b"\n\n")


def test_an_event_without_a_needle_is_never_looked_at() -> None:
    class Strict:
        needles: tuple[bytes, ...] = (b"end",)

        def terminal(self, event: Event) -> Literal["complete"]:
            assert b"end" in event.data
            return "complete"

    watch = TerminalWatch(Strict())
    assert [False, False, False, False, True] == [
        watch.feed(chunk) for chunk in (b"data: e", b"xnd\n\n", b"data: e\n", b"\ndata: e", b"nd\n\ndata: x\n\n")
    ]


@pytest.mark.parametrize("step", [1, 7, 64, 10**6])
def test_an_event_above_the_limit_ends_nothing_and_hides_nothing_behind_it(step: int) -> None:
    long = b'data: {"error":{"message":"' + b"A" * 100 + b'"}}\ndata: [DONE]\n\n'
    body = long + b"data: [DONE]\n\n"
    exact, below = (TerminalWatch(Chat(), limit) for limit in (len(long), len(long) - 1))
    pieces = [body[start : start + step] for start in range(0, len(body), step)]
    ends = [[position for position, piece in enumerate(pieces) if watch.feed(piece)] for watch in (exact, below)]
    assert [[(len(long) - 1) // step], [(len(body) - 1) // step]] == ends


def test_what_is_kept_of_an_event_without_an_end_is_bounded() -> None:
    watch = TerminalWatch(Chat(), 1 << 20)
    tracemalloc.start()
    for number in range(256):
        watch.feed(b"%d" % number * (1 << 16))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 << 20


@given(cut_bodies())
def test_the_first_token_is_found_however_the_bytes_are_cut(chunks: list[bytes]) -> None:
    body = b"".join(chunks)
    expected = None
    for length in range(len(body) + 1):
        start = body[:length].removeprefix(b"\xef\xbb\xbf")
        mark_so_far = len(start) < 3 and b"\xef\xbb\xbf".startswith(body[:length])
        if not mark_so_far and any(line and not line.startswith(b":") for line in re.split(rb"[\r\n]", start)):
            ends = [sum(map(len, chunks[: position + 1])) for position in range(len(chunks))]
            expected = next(position for position, end in enumerate(ends) if end >= length)
            break
    first = FirstToken()
    found = next((position for position, chunk in enumerate(chunks) if first.feed(chunk)), None)
    assert expected == found


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([b"data: a\n\n"], [True]),
        ([b": keep-alive\n\n", b"\r\n", b"data: a\n\n"], [False, False, True]),
        ([b": keep", b"-alive", b"\n", b"d"], [False, False, False, True]),
        ([b": c\r", b"\n:", b" d\r\r: e\n\n", b"event: x"], [False, False, False, True]),
        ([b"\xef\xbb", b"\xbf", b": c\n", b"", b"data"], [False, False, False, False, True]),
        ([b": c\n\ndata: a\n\n"], [True]),
    ],
)
def test_comments_and_blank_lines_are_no_token(chunks: list[bytes], expected: list[bool]) -> None:
    first = FirstToken()
    assert expected == [first.feed(chunk) for chunk in chunks]
