"""Rebuilt values that can be stored."""

from __future__ import annotations

from typing import Any

import pytest

from otel_gym.dialects.mending import mended

DEEP: Any = []
for _ in range(5000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("\ud83d\ude00", "😀"),
        ({"a\ud83d": ["\ud83d", 1, {"b": "\ud83d\ude00"}]}, {"a\ufffd": ["\ufffd", 1, {"b": "😀"}]}),
        ([10**30, "\ude00"], [10**30, "\ufffd"]),
    ],
)
def test_surrogate_halves_are_joined_or_replaced_at_any_depth(value: Any, expected: Any) -> None:
    assert expected == mended(value)


def test_what_is_nested_too_deep_comes_back_as_it_was() -> None:
    assert mended(DEEP) is DEEP
