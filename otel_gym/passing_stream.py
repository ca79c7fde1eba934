"""A streamed answer while it passes: when its first token comes, and which piece completes its end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from otel_gym.content_encoding import Decoder
from otel_gym.dialects import Dialect, Terminal
from otel_gym.sse import FirstToken, TerminalWatch
from otel_gym.threads import Threads

logger = logging.getLogger(__name__)

DECODED_ON_LOOP_BYTES: Final = 16 << 20
"""The most that one piece of a stream may decode to and still be watched."""

_judges: Final = Threads("otel-gym-judge", 2)


class PassingStream:
    """Watches the pieces of one stream, encoded or not.

    A fault of ours costs the stream its early end, never the client its answer: the end of the body ends it then.

    Args:
        dialect: says which events are terminal.
        encoding: value of the `Content-Encoding` header, "" without one.
        first_token: called when the first piece passes that holds more than comments and blank lines.
        limit: bytes of one event that are kept while it passes.
    """

    def __init__(self, dialect: Dialect, encoding: str, first_token: Callable[[], None], limit: int) -> None:
        self._watch: TerminalWatch | None = TerminalWatch(dialect, limit)
        self._decoder = Decoder(encoding) if encoding else None
        self._first_token: FirstToken | None = FirstToken()
        self._on_first_token = first_token

    def feed(self, piece: bytes) -> bool | None:
        """Whether this piece completes the terminal event; None when `judged()` must say it, before the next piece."""
        watch = self._watch
        if watch is None:
            return False
        try:
            if self._decoder is not None:
                piece = _decoded(self._decoder, piece)
            if self._first_token is not None and self._first_token.feed(piece):
                self._first_token = None
                self._on_first_token()
            return watch.feed(piece)
        except Exception:
            logger.exception(_FAULT)
            self._watch = None
            return False

    @property
    def passes(self) -> Callable[[bytes], bool] | None:
        """What says of a piece that nothing need be done about it; None where each piece has to be fed."""
        if self._watch is None or self._decoder is not None or self._first_token is not None:
            return None
        return self._watch.passes

    @property
    def terminal(self) -> Terminal | None:
        """How the stream's terminal event ended it; None before it."""
        return None if self._watch is None else self._watch.terminal

    async def judged(self) -> bool:
        """What `feed` left open: the verdict on a long event, found off the loop. Not to be cancelled."""
        watch = self._watch
        if watch is None:
            return False
        try:
            try:
                verdict = _judges.run(watch.judge)
            except RuntimeError:  # no thread is to be had: the end must be known before the client sees it
                return watch.judge()
            return await verdict
        except Exception:
            logger.exception(_FAULT)
            self._watch = None
            return False


def _decoded(decoder: Decoder, piece: bytes) -> bytes:
    """The piece decoded; OverflowError where it is a bomb, which has no business on the event loop."""
    parts = []
    size = 0
    for part in decoder.feed(piece):
        size += len(part)
        if size > DECODED_ON_LOOP_BYTES:
            raise OverflowError(f"a piece of {len(piece)} bytes decodes to more than {DECODED_ON_LOOP_BYTES}")
        parts.append(part)
    return b"".join(parts)


_FAULT = "otel-gym: a stream cannot be watched for its end; it is recorded when its body ends"
