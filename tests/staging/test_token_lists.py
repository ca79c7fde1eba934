from __future__ import annotations

import struct
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.staging.token_lists import encode_log_probs, encode_mask, encode_token_ids

SINGLES = st.floats(width=32, allow_nan=False, allow_infinity=False)
DOUBLES = st.floats(min_value=-3.4028234e38, max_value=3.4028234e38)


class Index:
    """As NumPy's ints: usable as one, and none."""

    def __index__(self) -> int:
        return 1


class Number(int):
    pass


class Real(float):
    pass


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_ids_are_a_count_and_eight_bytes_each(ids: list[int]) -> None:
    assert struct.pack(f">Q{len(ids)}Q", len(ids), *ids) == encode_token_ids(ids)


@given(st.lists(DOUBLES | SINGLES))
def test_log_probs_are_a_count_and_four_bytes_each(values: list[float]) -> None:
    assert struct.pack(f">Q{len(values)}f", len(values), *values) == encode_log_probs(values, bytes(len(values)))


@given(st.lists(st.sampled_from([0.0, 1.0, -0.0])))
def test_a_mask_is_a_count_and_four_bytes_each(mask: list[float]) -> None:
    encoded = struct.pack(f">Q{len(mask)}f", len(mask), *mask)
    assert (encoded, bytes(value == 0.0 for value in mask)) == encode_mask(mask)


@pytest.mark.parametrize("odd", [True, 1.0, "1", None, Index(), Number(1), -1, 2**64, b"1", [1]])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_no_exact_int_of_64_bits_is_no_id(odd: Any, place: int) -> None:
    ids = [5, 6, 7]
    ids[place] = odd
    with pytest.raises(ValueError):
        encode_token_ids(ids)


@pytest.mark.parametrize(
    "odd",
    [True, 1, "1.0", None, Real(1.0), float("nan"), float("inf"), -float("inf"), 1e39, -1e39, 3.4028235677973366e38],
)
def test_what_is_no_finite_float_of_32_bits_is_no_log_probability(odd: Any) -> None:
    with pytest.raises(ValueError):
        encode_log_probs([-0.5, odd], b"\x00\x00")


def test_large_log_probabilities_that_fit_are_taken() -> None:
    values = [3.4028235e38, -3.4028235e38, 2e38, 1e-46, -0.0]
    assert struct.pack(">Q5f", 5, *values) == encode_log_probs(values, bytes(5))


@pytest.mark.parametrize("odd", [0.5, 2.0, -1.0, 1, 0, True, None, float("nan"), 1e-46, 1.0000000001, 0.9999999999999])
def test_a_mask_is_nought_or_one(odd: Any) -> None:
    with pytest.raises(ValueError):
        encode_mask([0.0, odd, 1.0])


@pytest.mark.parametrize("value", [-0.5, 1e-320, 5e-324])
def test_a_token_of_the_prompt_has_no_log_probability(value: float) -> None:
    with pytest.raises(ValueError, match="prompt"):
        encode_log_probs([value, -0.5], b"\x01\x00")


def test_any_iterable_of_ids_will_do() -> None:
    wanted = encode_token_ids([1, 2, 3])
    assert [wanted] * 4 == [encode_token_ids(ids) for ids in ((1, 2, 3), range(1, 4), array("I", [1, 2, 3]), b"\1\2\3")]
