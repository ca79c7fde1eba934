"""What the corpus does not say: properties, and the errors that a person reads."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.staging import compute_chain_hash, compute_extras_digest, hash_token_ids

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)  # fmt: skip


def written(value: Any) -> bytes:
    """The contract's typed values, word for word."""
    if value is None:
        return b"N"
    if isinstance(value, bool):
        return b"B" + (b"\x01" if value else b"\x00")
    if isinstance(value, int):
        return b"I" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"F" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"S" + text(value)
    if isinstance(value, list):
        return b"L" + struct.pack(">Q", len(value)) + b"".join(map(written, value))
    items = sorted(value.items(), key=lambda item: item[0].encode())
    return b"D" + struct.pack(">Q", len(items)) + b"".join(text(key) + written(item) for key, item in items)


def text(value: str) -> bytes:
    return struct.pack(">Q", len(value.encode())) + value.encode()


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), JSON))
def test_extras_are_typed_values_with_keys_in_the_order_of_their_bytes(extras: dict[str, Any]) -> None:
    wanted = hashlib.sha256(b"nemo-gym-staging-extras-v1\x01" + written(extras)).hexdigest()
    assert wanted == compute_extras_digest(extras)


@given(st.lists(st.integers(0, 2**64 - 1)), st.lists(st.integers(0, 2**64 - 1)))
def test_a_chain_tells_how_its_tokens_came_together(first: list[int], second: list[int]) -> None:
    chained = compute_chain_hash(compute_chain_hash(None, first), second)
    assert chained != compute_chain_hash(None, first + second)
    assert hash_token_ids(first + second) == hash_token_ids((*first, *second))


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize("odd", [(1,), b"1", {1}, Text("1"), object(), {"x": (1,)}, [[[b""]]]])
def test_extras_of_other_types_are_refused_however_deep(odd: Any) -> None:
    with pytest.raises(TypeError):
        compute_extras_digest({"x": odd})
