from __future__ import annotations

import gzip
import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from otel_gym.bodies import Body


def body_of(*pieces: Any, limit: int = 1 << 20, encoding: str = "") -> Body:
    body = Body(limit)
    body.encoding = encoding
    for piece in pieces:
        body.add(piece)
    return body


@given(st.lists(st.binary(max_size=20)))
def test_a_body_is_its_pieces(pieces: list[bytes]) -> None:
    body = body_of(*pieces)
    whole = b"".join(pieces)
    assert (bool(whole), False) == (bool(body), body.too_large)
    assert whole == body.take()


def test_a_body_is_given_up_when_it_is_taken() -> None:
    body = body_of(b"a", b"b")
    assert (b"ab", b"", True) == (body.take(), body.take(), bool(body))


def test_a_piece_is_kept_as_it_was_when_it_passed() -> None:
    buffer = bytearray(b"abc")
    body = body_of(buffer, memoryview(buffer))
    buffer[:] = b"xyz"
    assert b"abcabc" == body.take()


def test_a_body_at_the_limit_is_kept_and_one_above_is_not() -> None:
    exact = body_of(b"12", b"34", limit=4)
    above = body_of(b"12", b"345", b"6", limit=4)
    assert (b"1234", False) == (exact.take(), exact.too_large)
    assert (b"", True, True) == (above.take(), above.too_large, bool(above))


def test_a_body_that_decodes_to_more_than_the_limit_is_kept_as_it_came() -> None:
    encoded = gzip.compress(bytes(1000))
    exact, above = (body_of(encoded, limit=limit, encoding="gzip") for limit in (1000, 999))
    assert (bytes(1000), False) == (exact.take(), exact.too_large)
    assert (encoded, True) == (above.take(), above.too_large)


def test_a_body_in_crumbs_costs_about_its_size() -> None:
    """As objects of their own, pieces of two bytes would cost seventy times as much."""
    body = Body(1 << 30)
    tracemalloc.start()
    for _ in range(500_000):
        body.add(b"ab")
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 3 * body.size
    assert b"ab" * 500_000 == body.take()


@given(st.lists(st.binary(max_size=3) | st.integers(0, 5000).map(lambda size: b"x" * size), max_size=30))
def test_pieces_of_any_size_keep_their_order(pieces: list[bytes]) -> None:
    body = Body(1 << 30)
    for piece in pieces:
        body.add(piece)
    assert (b"".join(pieces), sum(map(len, pieces))) == (body.take(), body.size)
