"""What is kept of one HTTP body while it passes, bounded as it came and as it decodes."""

from __future__ import annotations

from otel_gym.content_encoding import decode

CRUMB_BYTES = 1 << 10
FULL_BYTES = 1 << 16


class Body:
    """Pieces of a body as they pass by.

    Args:
        limit: bytes that are kept; of a larger body nothing is.

    Attributes:
        limit: as given.
        size: bytes that passed, kept or not.
        encoding: value of its `Content-Encoding` header, "" without one.
        too_large: the body, or what it decodes to, exceeds the limit: it is not in the record as it should be.
    """

    __slots__ = ("_crumbs", "_pieces", "encoding", "limit", "size", "too_large")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._pieces: list[bytes] = []
        self._crumbs = bytearray()  # small pieces, which as objects of their own would cost many times their size
        self.size = 0
        self.encoding = ""
        self.too_large = False

    def __bool__(self) -> bool:
        return self.size > 0

    def add(self, piece: bytes) -> None:
        """Keep a piece. Called on the event loop, so it only appends."""
        self.size += len(piece)
        if self.size > self.limit:
            self.too_large = True
            self._pieces.clear()
            self._crumbs.clear()
        elif len(piece) < CRUMB_BYTES:
            self._crumbs += piece
            if len(self._crumbs) >= FULL_BYTES:
                self._gather()
        else:
            self._gather()
            self._pieces.append(bytes(piece))

    def _gather(self) -> None:
        if self._crumbs:
            self._pieces.append(bytes(self._crumbs))
            self._crumbs.clear()

    def take(self) -> bytes:
        """The body, decoded when its encoding is known, and given up here.

        Empty when it was too large; as it came when only what it decodes to is.
        """
        self._gather()
        pieces, self._pieces = self._pieces, []
        if not self.encoding:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        out: list[bytes] = []
        size = 0
        for decoded in decode(pieces, self.encoding):
            size += len(decoded)
            if size > self.limit:
                self.too_large = True
                return b"".join(pieces)
            out.append(decoded)
        return b"".join(out)
