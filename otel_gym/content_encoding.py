"""`Content-Encoding` undone, piece by piece and bounded: gzip, deflate, zstd, br, and several of them in a row.

The bytes that pass by are never changed; this makes the copy that the record holds readable. Source: the capture
contract ("Streams", "better"), divergence 17.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from otel_gym.asgi import header_values
from otel_gym.errors import OtelGymError

PIECE_BYTES = 1 << 16
_ZSTD_SLICE = 512  # of input: what one call can make of it stays in the megabytes, whatever it claims to hold
_MOST_UNDECODED_BYTES = 1 << 20  # before the first decoded byte
_UNDECIDED_BYTES = 4096
_MOST_AGAIN_BYTES = 1 << 18  # that a damaged stream is decoded of once more, and
_MOST_AGAIN_DECODED_BYTES = 1 << 22  # that they may decode to: it is done on the event loop
_SLICE_BYTES = 4096  # of a whole body: so many bytes are gone through one by one where it is damaged


class EncodingError(OtelGymError, ValueError):
    """The data is not what its encoding says, or the library for it is not installed.

    Attributes:
        guessed: the format was only tried, since the one that the encoding means did not fit.
    """

    def __init__(self, reason: str, guessed: bool = False) -> None:
        super().__init__(reason)
        self.guessed = guessed


Stage = Callable[[bytes], Iterator[bytes]]
"""Takes the next encoded bytes, gives what they decode to in pieces of bounded size; raises EncodingError."""


def encoding_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """What the `Content-Encoding` headers say together, "" without one."""
    return encoding_said(header_values(headers, b"content-encoding"))


def encoding_said(values: Iterable[bytes]) -> str:
    """What these values of `Content-Encoding` say together, "" without one."""
    return ", ".join([value.decode("latin-1") for value in values])


class Decoder:
    """Decodes a body as it comes.

    A body that does not decode from its first byte on is taken as it is: servers that decode their upstream's body
    often leave the header behind. One that is damaged decodes up to there, however it is cut, unless it is long.

    Args:
        encoding: value of the `Content-Encoding` header.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        names = [name for part in encoding.split(",") if (name := part.strip().lower()) and name != "identity"]
        self._stages: list[Stage] = []
        for name in reversed(names):
            make = _STAGES.get(name)
            if make is None:  # unknown, or its library is missing: what is inside cannot be read either
                break
            self._stages.append(make())
        self._fed: list[bytes] = []  # what has come, as long as it may have to be decoded again
        self._fed_bytes = 0
        self._given = 0  # decoded bytes
        self._broken = False
        self.plain = not self._stages

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The decoded bytes of the next piece; after damage, nothing more."""
        if self.plain:
            yield data
            return
        if self._broken:
            return
        if not self._given and self._fed_bytes > _MOST_UNDECODED_BYTES:
            self._broken = True  # headers without an end: nothing will come of it
            self._fed = []
            return
        self._fed_bytes += len(data)
        if not self._given or self._may_go_again:
            self._fed.append(data)
        try:
            for piece in self.through(data):
                self._given += len(piece)
                yield piece
        except EncodingError:
            self._broken = True
            yield from self._again()
        if self._given and not self._may_go_again:
            self._fed = []

    @property
    def _may_go_again(self) -> bool:
        return self._fed_bytes <= _MOST_AGAIN_BYTES and self._given <= _MOST_AGAIN_DECODED_BYTES

    def _again(self) -> Iterator[bytes]:
        """What the piece with the damage gives before it: the engine kept that to itself."""
        fed, self._fed = self._fed, []
        if self._may_go_again:
            skipped = self._given
            for piece in _up_to_damage(fed, self._encoding):
                self._given += max(0, len(piece) - skipped)
                yield piece[skipped:]
                skipped = max(0, skipped - len(piece))
        if not self._given:
            self.plain = True
            yield b"".join(fed)

    def finish(self) -> bytes:
        """At the end of the body: the bytes as they came when not one of them could be decoded."""
        return b"" if self._given or self.plain else b"".join(self._fed)

    def through(self, data: bytes) -> Iterator[bytes]:
        """What the next bytes decode to; raises EncodingError where they are damaged."""
        return self._through((data,), 0)

    def _through(self, pieces: Iterable[bytes], position: int) -> Iterator[bytes]:
        if position == len(self._stages):
            yield from pieces
            return
        stage = self._stages[position]
        for piece in pieces:
            yield from self._through(stage(piece), position + 1)


def decode(pieces: Sequence[bytes], encoding: str) -> Iterator[bytes]:
    """A whole body, decoded up to the byte where it is damaged; as it came when not one byte of it can be decoded.

    An engine that meets damage keeps back what it made of the good bytes before it in the same call. So the slice with
    the damage is decoded again byte by byte (not where the format is a guess: any text is the beginning of something).
    The result does not depend on how the body was cut into messages.
    """
    given = 0
    for decoded in _up_to_damage(pieces, encoding):
        given += len(decoded)
        yield decoded
    if not given:
        yield from pieces


def _up_to_damage(pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    decoder = Decoder(encoding)
    given = 0
    good: list[bytes] = []
    for data in _slices(pieces):
        try:
            for decoded in decoder.through(data):
                given += len(decoded)
                yield decoded
        except EncodingError as error:
            if not error.guessed:
                yield from _byte_by_byte(Decoder(encoding), good, data, given)
            return
        good.append(data)


def _slices(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, cut at every 4,096th."""
    left = bytearray()
    for piece in pieces:
        left += piece
        whole = len(left) - len(left) % _SLICE_BYTES
        for at in range(0, whole, _SLICE_BYTES):
            yield bytes(left[at : at + _SLICE_BYTES])
        del left[:whole]
    if left:
        yield bytes(left)


def _byte_by_byte(decoder: Decoder, good: Iterable[bytes], damaged: bytes, given: int) -> Iterator[bytes]:
    """What `damaged` gives when its bytes come one by one, after `good`; without the first `given` bytes of all."""
    single = (damaged[at : at + 1] for at in range(len(damaged)))
    try:
        for data in chain(good, single):
            for decoded in decoder.through(data):
                yield decoded[given:]
                given = max(0, given - len(decoded))
    except EncodingError:
        return


def _inflate(*window_bits: int) -> Stage:
    """A stage for one of zlib's formats: members may follow each other; more than one format is tried in order."""
    formats = list(window_bits)
    engine = zlib.decompressobj(formats[0])
    undecided = b""
    decided = len(formats) == 1

    def feed(data: bytes) -> Iterator[bytes]:
        nonlocal engine, undecided, decided
        if not decided:
            undecided += data
        while data:
            if engine.eof:
                engine = zlib.decompressobj(formats[0])
            try:
                piece = engine.decompress(data, PIECE_BYTES)
            except zlib.error as exc:
                if decided or len(formats) == 1:
                    raise EncodingError(str(exc), guessed=formats[0] != window_bits[0]) from exc
                del formats[0]
                engine = zlib.decompressobj(formats[0])
                data, decided = undecided, True
                continue
            if piece and undecided and formats[0] != window_bits[0] and not _is_text(piece):
                raise EncodingError("not what its encoding says", guessed=True)
            if piece or len(undecided) > _UNDECIDED_BYTES:
                undecided, decided = b"", True
            data = engine.unused_data if engine.eof else engine.unconsumed_tail
            yield piece

    return feed


def _is_text(data: bytes) -> bool:
    """Whether decoded bytes may begin a body: a model's answers and requests are text."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data[:256])
    except UnicodeDecodeError:
        return False
    return text.isprintable() or all(char.isprintable() or char in "\t\r\n\ufeff" for char in text)


def _gzip() -> Stage:
    return _inflate(zlib.MAX_WBITS | 16)


def _deflate() -> Stage:
    return _inflate(zlib.MAX_WBITS, -zlib.MAX_WBITS)  # the raw kind is wrong, and some servers send it


def _zstd() -> Stage:
    try:
        import zstandard  # when the first such body comes: most servers never see one
    except ImportError:
        return _unreadable("zstandard is not installed")
    engine: Any = zstandard.ZstdDecompressor().decompressobj()

    def feed(data: bytes) -> Iterator[bytes]:
        nonlocal engine
        for start in range(0, len(data), _ZSTD_SLICE):
            rest = data[start : start + _ZSTD_SLICE]
            while rest:
                if engine.eof:
                    engine = zstandard.ZstdDecompressor().decompressobj()
                try:
                    piece = engine.decompress(rest)
                except zstandard.ZstdError as exc:
                    raise EncodingError(str(exc)) from exc
                rest = engine.unused_data if engine.eof else b""
                yield piece

    return feed


def _brotli() -> Stage:
    try:
        import brotli  # the extra `br`
    except ImportError:
        return _unreadable("brotli is not installed")
    if not hasattr(brotli.Decompressor, "can_accept_more_data"):
        return _unreadable("brotli before 1.2 cannot bound what it decodes to")
    engine = brotli.Decompressor()

    def feed(data: bytes) -> Iterator[bytes]:
        try:
            piece = engine.process(data, output_buffer_limit=PIECE_BYTES)
            while piece:
                yield piece
                piece = b"" if engine.is_finished() else engine.process(b"", output_buffer_limit=PIECE_BYTES)
        except brotli.error as exc:
            raise EncodingError(str(exc)) from exc

    return feed


def _unreadable(reason: str) -> Stage:
    def feed(data: bytes) -> Iterator[bytes]:
        raise EncodingError(reason)

    return feed


_STAGES: dict[str, Callable[[], Stage]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstd,
    "br": _brotli,
}
