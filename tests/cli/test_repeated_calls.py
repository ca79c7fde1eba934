from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.cli.repeated_calls import Place, RepeatedCalls, SeenIds


def call_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


@pytest.mark.parametrize("spread", [1, 0x9E3779B97F4A7C15F39CC0605CEDC835], ids=["counted", "random"])
def test_a_filter_forgets_none_and_suspects_few(spread: int) -> None:
    seen = SeenIds(bits=1 << 20)
    ids = [call_id(number * spread % (1 << 128)) for number in range(20_000)]
    assert 20 > sum(map(seen.add, ids))
    assert all(map(seen.add, ids))


# Files of calls, each call a small number, so that many stand twice.
FILES = st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=5)


@given(files=FILES, bits=st.sampled_from([8, 1 << 10]))
def test_just_the_calls_that_stand_twice_are_found_however_small_the_filter(files: list[list[int]], bits: int) -> None:
    def calls() -> Iterator[tuple[bytes, Place]]:
        for name, numbers in enumerate(files):
            for line, number in enumerate(numbers, 1):
                yield call_id(number), Place(str(name), line, line == 1)

    repeated = RepeatedCalls(SeenIds(bits))
    for each, _ in calls():
        repeated.pass_by(each)
    found = {repeat.place: repeat for repeat in repeated.repeats(calls())}
    firsts: dict[bytes, Place] = {}
    expected: set[Place] = set()
    copies: dict[str, str] = {}
    for each, place in calls():
        first = firsts.setdefault(each, place)
        if first is place:
            continue
        if place.is_first and first.is_first:
            copies[place.file] = first.file
        elif copies.get(place.file) == first.file:
            continue
        expected.add(place)
    assert expected == found.keys()
    assert all(repeat.begins_copy == (place.file in copies and place.is_first) for place, repeat in found.items())


def test_what_was_not_suspected_needs_no_second_look() -> None:
    repeated = RepeatedCalls()
    for number in range(1000):
        repeated.pass_by(call_id(number))
    assert (set(), False) == (repeated.suspects, repeated.too_many)
