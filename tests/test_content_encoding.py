from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.bodies import Body
from otel_gym.content_encoding import Decoder, decode, encoding_of

TEXT = b"".join(b"data: %d\n\n" % number for number in range(200))


def raw_deflate(data: bytes) -> bytes:
    engine = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return engine.compress(data) + engine.flush()


def zstd_blocks(data: bytes) -> bytes:
    """A frame of several blocks: a decoder gives a block at a time."""
    engine = zstandard.ZstdCompressor().compressobj()
    half = len(data) // 2
    flushed = engine.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return b"".join([engine.compress(data[:half]), flushed, engine.compress(data[half:]), engine.flush()])


ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd_blocks,
    "br": brotli.compress,
}
OF_EACH = pytest.mark.parametrize(("name", "encode"), ENCODINGS.items(), ids=ENCODINGS)


def whole(data: bytes, encoding: str) -> bytes:
    return b"".join(decode([data], encoding))


@OF_EACH
def test_a_body_is_what_was_encoded(name: str, encode: Callable[[bytes], bytes]) -> None:
    assert TEXT == whole(encode(TEXT), name)


def test_deflate_without_zlibs_header_is_read_too() -> None:
    assert TEXT == whole(raw_deflate(TEXT), "deflate")


def test_several_encodings_are_undone_from_the_last_to_the_first() -> None:
    assert TEXT == whole(brotli.compress(gzip.compress(TEXT)), " GZip , identity,br")


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_members_and_frames_may_follow_each_other(name: str) -> None:
    encode = ENCODINGS[name]
    assert TEXT + b"end" == whole(encode(TEXT) + encode(b"end"), name)


@OF_EACH
def test_a_body_that_is_not_what_the_header_says_is_read_as_it_is(name: str, encode: Callable[[bytes], bytes]) -> None:
    assert b'{"a":1}' == whole(b'{"a":1}', name)


def test_an_encoding_that_nobody_knows_leaves_the_body_alone() -> None:
    assert TEXT == whole(TEXT, "compress")


@OF_EACH
def test_a_body_that_is_cut_gives_its_beginning(name: str, encode: Callable[[bytes], bytes]) -> None:
    data = encode(TEXT)
    for end in range(1, len(data)):
        decoded = whole(data[:end], name)
        assert decoded == data[:end] or TEXT.startswith(decoded)


@OF_EACH
@given(st.data())
def test_any_cuts_of_a_body_give_the_same_even_where_it_is_damaged(
    name: str, encode: Callable[[bytes], bytes], data: st.DataObject
) -> None:
    encoded = bytearray(encode(TEXT))
    if data.draw(st.booleans()):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(encoded)), max_size=8)))
    pieces = [bytes(encoded[a:b]) for a, b in zip([0, *cuts], [*cuts, len(encoded)], strict=True)]
    assert whole(bytes(encoded), name) == b"".join(decode(pieces, name))


def passing(pieces: list[bytes], name: str) -> bytes:
    """What a stream gives while it passes, piece by piece."""
    decoder = Decoder(name)
    return b"".join(part for piece in pieces for part in decoder.feed(piece)) + decoder.finish()


@pytest.mark.parametrize("name", ["gzip", "zstd", "br"])  # a guess between two kinds of deflate has no second chance
@given(st.data())
def test_any_cuts_of_a_damaged_stream_give_the_same_while_it_passes(name: str, data: st.DataObject) -> None:
    encoded = bytearray(ENCODINGS[name](TEXT)) + data.draw(st.sampled_from([b"", b"junk", TEXT]))
    if data.draw(st.booleans()):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(encoded)), max_size=8)))
    pieces = [bytes(encoded[a:b]) for a, b in zip([0, *cuts], [*cuts, len(encoded)], strict=True)]
    assert passing([bytes(encoded)], name) == passing(pieces, name)
    assert whole(bytes(encoded), name) == passing(pieces, name)


def test_of_a_long_stream_the_piece_with_the_damage_is_lost_and_nothing_before_it() -> None:
    noise = random.Random(1).randbytes(300_000)
    encoded = bytearray(gzip.compress(noise + TEXT))
    encoded[-8] ^= 1  # its checksum
    assert noise + TEXT == passing([bytes(encoded[:-8]), bytes(encoded[-8:])], "gzip")
    assert b"" != passing([bytes(encoded[:290_000]), bytes(encoded[290_000:])], "gzip") != noise + TEXT


def test_a_long_body_may_come_in_one_piece() -> None:
    noise = random.Random(1).randbytes(2_000_000)
    assert noise == passing([gzip.compress(noise)], "gzip")


def test_damage_late_in_a_body_costs_nothing_of_what_comes_before() -> None:
    data = bytearray(gzip.compress(TEXT * 40, compresslevel=0))
    del data[9000:9100]
    assert TEXT * 40 == whole(bytes(data), "gzip")[:4096] + (TEXT * 40)[4096:]


def test_what_a_bomb_decodes_to_is_bounded() -> None:
    body = Body(limit=1 << 20)
    body.encoding = "gzip"
    body.add(bomb := gzip.compress(bytes(1 << 26)))
    assert (bomb, True) == (body.take(), body.too_large)


def test_a_library_that_cannot_bound_its_output_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Older:
        """`brotli.Decompressor` as it was before 1.2."""

        def process(self, data: bytes) -> bytes:
            raise AssertionError("never asked")

    monkeypatch.setattr(brotli, "Decompressor", Older)
    assert (data := brotli.compress(TEXT)) == whole(data, "br")


def test_several_headers_say_one_encoding_together() -> None:
    headers = [(b"Content-Encoding", b"gzip"), (b"x", b"y"), (b"content-encoding", b"zstd")]
    assert ("gzip, zstd", "") == (encoding_of(headers), encoding_of([]))
