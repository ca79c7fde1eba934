"""A stream watched while it passes: which chunk completes its end, which one holds its first token.

Both run on the event loop for every chunk, so both look at each byte once and parse nothing that cannot matter.
"""

from __future__ import annotations

import re
from typing import Any, Final, Protocol

from otel_gym.sse.events import BOM, Event, block_events

PARSED_ON_LOOP_BYTES: Final = 16 * 1024
"""The most that one `feed` parses on the calling thread."""

_COMMENTS_AND_BLANK_LINES: Final = re.compile(rb"(?:[\r\n]+|:[^\r\n]*)*")


class TerminalEvents(Protocol):
    """What the watch asks of a dialect; see `otel_gym.dialects.base.Dialect`."""

    needles: tuple[bytes, ...]

    def terminal(self, event: Event) -> Any:
        """Anything but None where the event ends a stream."""


class TerminalWatch:
    """Finds the chunk that completes the first terminal event of a stream, however the bytes are cut.

    An event without any of the dialect's needles is never looked at. No more than the current event is kept.

    Args:
        dialect: says which events end a stream.
        limit: bytes of an event; a larger one is not kept, and ends nothing.

    Attributes:
        terminal: what the dialect said of the first terminal event; None before it.
    """

    terminal: Any

    _between: bool  # nothing is kept: the last chunk ended with the blank line of its event
    _pieces: list[bytes]  # the current event so far
    _size: int  # its bytes
    _tail: bytes  # its last bytes, for needles that are cut
    _hot: bool  # it has a needle
    _ends_line: bool  # its last byte ends a line

    def __init__(self, dialect: TerminalEvents, limit: int = 1 << 28) -> None:
        self.terminal = None
        self._limit = limit
        self._terminal = dialect.terminal
        self._needles = dialect.needles
        self._overlap = max(map(len, dialect.needles)) - 1
        self._opening: bytes | None = b""  # the first bytes, until they are a byte-order mark or not
        self._raw_end = b""  # the last two bytes as they came
        self._held = b""  # a CR that waits for its LF
        self._over = False
        self._owed: tuple[list[bytes], bytes] | None = None  # a long event, and what came after it
        self._between = False
        self._begin_event()

    def passes(self, chunk: bytes) -> bool:
        """Whether the next bytes are whole events of no interest, as nearly every chunk of nearly every stream is.

        Then there is nothing to `feed`.
        """
        if self._between and chunk.endswith(b"\n\n"):
            for needle in self._needles:  # this runs for each token
                if needle in chunk:
                    return self._ends_nothing(chunk)
            return True
        return False

    def _ends_nothing(self, chunk: bytes) -> bool:
        """Whether a chunk with a needle is one short event of no interest all the same: a needle is a word, too."""
        if len(chunk) > PARSED_ON_LOOP_BYTES or chunk.find(b"\n\n") != len(chunk) - 2 or b"\r" in chunk:
            return False
        return not any(map(self._terminal, block_events(chunk[:-2])))

    def feed(self, chunk: bytes) -> bool | None:
        """Take the next bytes of the stream.

        Returns:
            True when they complete the first terminal event (once, False ever after); None when an event in them is too
            long to be judged here: call `judge`, in another thread, before the next `feed`.
        """
        if self.passes(chunk) or self._over:
            return False
        verdict = self._feed(chunk)
        self._between = self._raw_end == b"\n\n" and not (self._pieces or self._opening or self._owed or self._over)
        return verdict

    def _feed(self, chunk: bytes) -> bool | None:
        if self._opening is not None:
            chunk = self._opening + chunk
            if len(chunk) < len(BOM) and BOM.startswith(chunk):
                self._opening = chunk
                return False
            self._opening = None
            chunk = chunk.removeprefix(BOM)
        chunk = self._with_lf_only(chunk)
        if self._owed is not None:
            self._owed = (self._owed[0], self._owed[1] + chunk)
            return None
        return self._scan(chunk, PARSED_ON_LOOP_BYTES)

    def judge(self) -> bool:
        """Finish what `feed` answered None for, at any length: True when the first terminal event is complete."""
        if self._owed is None:
            return False
        (pieces, rest), self._owed = self._owed, None
        return self._ends_stream(pieces) or bool(self._scan(rest, None))

    def _with_lf_only(self, chunk: bytes) -> bytes:
        """The chunk with LF for every line end that is complete."""
        if not chunk:
            return chunk
        before = self._raw_end
        last = (before + chunk)[-3:]
        self._raw_end = last[-2:]
        if b"\r" not in chunk and not before.endswith(b"\r"):
            return chunk
        if before.endswith(b"\r") and not self._held and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        chunk = self._held + chunk
        # A CR that makes a blank line ends an event, but not where CR LF ended the line before: there its LF is on
        # its way, and clients wait for it.
        self._held = b"\r" if last == b"\r\n\r" else b""
        if self._held:
            chunk = chunk[:-1]
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _scan(self, text: bytes, budget: int | None) -> bool | None:
        """Look for ends of events in bytes that have LF line ends only; `budget` bounds what is parsed, in bytes."""
        if not self._hot and not self._has_needle(text):
            last = text.rfind(b"\n\n")
            if last >= 0:
                self._begin_event()
                text = text[last + 2 :]
            elif self._ends_line and text.startswith(b"\n"):
                self._begin_event()
                text = text[1:]
            self._keep(text)
            return False
        position = 0
        while True:
            if self._ends_line and text.startswith(b"\n", position):
                end = position + 1
            else:
                end = text.find(b"\n\n", position) + 2
                if end < 2:
                    self._hot = self._hot or self._has_needle(text[position:])
                    self._keep(text[position:])
                    return False
            self._hot = self._hot or self._has_needle(text[position:end])
            self._keep(text[position:end])
            position = end
            pieces, hot = self._pieces, self._hot
            self._begin_event()
            if not hot:
                continue
            if budget is not None:
                budget -= sum(map(len, pieces))
                if budget < 0:
                    self._owed = (pieces, text[position:])
                    return None
            if self._ends_stream(pieces):
                return True

    def _has_needle(self, text: bytes) -> bool:
        text = self._tail + text
        return any(needle in text for needle in self._needles)

    def _keep(self, text: bytes) -> None:
        """Add a piece to the current event."""
        if not self._pieces:
            text = text.lstrip(b"\n")  # more blank lines than one between two events
        if not text:
            return
        self._size += len(text)
        if self._size > self._limit:
            self._pieces = [b":"]  # a comment, for the rest of this event
            self._hot = False
        else:
            self._pieces.append(text)
        self._ends_line = text.endswith(b"\n")
        self._tail = (self._tail + text)[-self._overlap :] if len(text) < self._overlap else text[-self._overlap :]

    def _begin_event(self) -> None:
        self._pieces = []
        self._size = 0
        self._tail = b""
        self._hot = self._ends_line = False

    def _ends_stream(self, pieces: list[bytes]) -> bool:
        block = b"".join(pieces).rstrip(b"\n")
        self.terminal = next(filter(None, map(self._terminal, block_events(block))), None)
        self._over = self.terminal is not None
        return self._over


class FirstToken:
    """Finds the first chunk of a stream with more than SSE comments and blank lines (row 21)."""

    __slots__ = ("_in_comment", "_opening")

    def __init__(self) -> None:
        self._opening: bytes | None = b""
        self._in_comment = False

    def feed(self, chunk: bytes) -> bool:
        """True when the bytes so far hold more than a byte-order mark, comments and blank lines."""
        if self._opening is not None:
            chunk = self._opening + chunk
            if len(chunk) < len(BOM) and BOM.startswith(chunk):
                self._opening = chunk
                return False
            self._opening = None
            chunk = chunk.removeprefix(BOM)
        if self._in_comment:
            chunk = b":" + chunk
        filler = _COMMENTS_AND_BLANK_LINES.match(chunk)
        if filler is not None and filler.end() < len(chunk):
            return True
        if chunk:
            self._in_comment = not chunk.endswith((b"\r", b"\n"))
        return False
