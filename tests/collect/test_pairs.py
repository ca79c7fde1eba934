from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from otel_gym.collect.pairs import PairSet

INDICES = st.integers(0, 100_000) | st.integers(0, 10**15)


@given(st.lists(st.tuples(INDICES, INDICES)), st.lists(st.tuples(INDICES, INDICES)))
def test_it_is_a_set(added: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    pairs, expected = PairSet(), set[tuple[int, int]]()
    for pair in added:
        assert (pair not in expected) == pairs.add(pair)
        expected.add(pair)
    assert len(expected) == len(pairs)
    assert [pair in expected for pair in added + others] == [pair in pairs for pair in added + others]


def test_a_hundred_thousand_tasks_in_a_row_take_a_bit_each() -> None:
    pairs = PairSet()
    for task in range(100_000):
        pairs.add((task, 3))
    assert sum(sys.getsizeof(block) for block in pairs._blocks.values()) < 17_000
