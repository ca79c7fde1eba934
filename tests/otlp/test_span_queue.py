from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_gym_otlp import attributes as names
from otel_gym_otlp.span_queue import Entry, SpanQueue
from tests.otlp.spans import ended_with, light_copy

SPAN = light_copy(ended_with({}))[0].size


def entry(content_bytes: int = 0) -> Entry:
    copy, content = light_copy(ended_with({names.INPUT_MESSAGES: "x" * content_bytes} if content_bytes else {}))
    return Entry(copy, content)


def test_content_goes_first_the_largest_first_and_spans_last_the_oldest_first() -> None:
    small, large, none, middle = entries = [entry(10_000), entry(50_000), entry(), entry(30_000)]
    queue = SpanQueue(4 * SPAN + 60_000, 100)
    for one in entries:
        queue.put(one)
    assert [True, False, False, True] == [one.content is not None for one in entries]
    assert (1, large.content_bytes) == (queue.shed["content"], large.shed_bytes)
    queue.max_bytes = 2 * SPAN + 100
    queue.put(entry())
    assert {"content": 3, "spans": 3} == {what: queue.shed[what] for what in ("content", "spans")}
    assert [middle.span, None] == [queue.take(1, 1)[0].span, None]
    assert small.settled
    assert none.settled


def test_too_many_spans_lose_the_oldest() -> None:
    queue = SpanQueue(10**9, 3)
    entries = [entry() for _ in range(5)]
    for one in entries:
        queue.put(one)
    assert entries[2:] == queue.take(10, 10**9)
    assert (2, 3) == (queue.shed["spans"], queue.spans)


def test_what_is_being_sent_counts_and_keeps_its_content() -> None:
    queue = SpanQueue(2 * SPAN + 60_000, 100)
    first, second = entry(40_000), entry(30_000)
    queue.put(first)
    assert [first] == queue.take(1, 10)
    queue.put(second)
    assert [True, False] == [one.content is not None for one in (first, second)]
    queue.settle(first)
    assert (second.memory, 1) == (queue.bytes, queue.spans)


def test_what_could_not_be_sent_comes_first_again_or_last_where_others_shall_have_their_turn() -> None:
    queue = SpanQueue(10**9, 100)
    entries = [entry() for _ in range(4)]
    for one in entries:
        queue.put(one)
    queue.put_back(queue.take(2, 10**9))
    queue.put_back(queue.take(1, 10**9), at_the_end=True)
    assert [*entries[1:], entries[0]] == queue.take(10, 10**9)


STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 40_000)),
    st.tuples(st.just("take"), st.integers(1, 5)),
    st.tuples(st.just("back"), st.booleans()),
    st.tuples(st.just("settle"), st.booleans()),
)


@given(st.lists(STEP, max_size=60))
def test_whatever_happens_the_bounds_hold_and_every_span_is_somewhere(steps: list[tuple[str, int]]) -> None:
    queue = SpanQueue(100_000, 20)
    flying: list[Entry] = []
    put = settled = 0
    for step, number in steps:
        if step == "put":
            queue.put(entry(number))
            put += 1
        elif step == "take":
            flying += queue.take(number, 50_000)
        elif step == "back":
            queue.put_back(flying, at_the_end=bool(number))
            flying = []
        else:
            for one in flying:
                queue.settle(one)
            settled += len(flying)
            flying = []
        in_flight = sum(one.memory for one in flying)
        assert queue.bytes <= 100_000 or not len(queue)
        assert queue.bytes - in_flight == sum(one.memory for one in queue._waiting)
        assert put == settled + queue.shed["spans"] + queue.spans
        assert queue.spans == len(queue) + len(flying)
        assert len(queue._largest) <= 2 * len(queue) + 66
