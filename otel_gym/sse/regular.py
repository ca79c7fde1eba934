"""A short way for regular streams: runs of events that differ from each other in one string only.

Nearly all events of a stream repeat the same bytes around a few new letters. Once one of them has been read with care,
those that follow need not be: a run of them is cut at what stands between two texts, and its texts are read together.
Whatever differs in anything else is left to the careful reader; a property in the tests says that both ways agree.
"""

from __future__ import annotations

import re
from typing import Final

import orjson

_MOST_FRAMES: Final = 64  # that one stream may go through before nothing is learned any more
_MOST_BYTES: Final = 1 << 16  # that are read in one go
_BLANK_LINE: Final = b"\n\n"

# What may stand between the quotes of a JSON string, but for escaped halves of surrogates: two make one letter, and may
# come in two events. Raw control characters and bad UTF-8 are the parser's business.
_LETTERS: Final = re.compile(rb'[^"\\]*(?:\\(?:[^u]|u(?![dD][89a-fA-F]))[^"\\]*)*')


class RegularRuns:
    """Reads runs of regular events in one body.

    Args:
        body: with LF line ends only.
    """

    __slots__ = ("_after", "_before", "_between", "_body", "_frames_left")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._frames_left = _MOST_FRAMES
        self._before = self._after = self._between = b""

    def learn(self, block: bytes, key: str, text: str) -> bool:
        """Take an event, whose only string under the key is this text, as the pattern of those that follow.

        False when it cannot be one.
        """
        before, after = self._before, self._after
        if before and block.startswith(before) and block.endswith(after) and len(block) >= len(before) + len(after):
            return True
        if not self._frames_left:
            return False
        self._frames_left -= 1
        for opening in (f'"{key}":"'.encode(), f'"{key}": "'.encode()):
            if block.count(opening) == 1:
                head, _, rest = block.partition(opening)
                letters = _LETTERS.match(rest)
                if letters is not None and _read([letters.group()]) == [text]:
                    self._before, self._after = head + opening, rest[letters.end() :]
                    self._between = self._after + _BLANK_LINE + self._before
                    return True
        return False

    def texts(self, position: int) -> tuple[list[str], int]:
        """Texts of the events from this position of the body on that are like the learned one, of 64 KB at most.

        And the position behind them: at an event that is not like it, as a rule.
        """
        body = self._body
        if not body.startswith(self._before, position):
            return [], position
        between, step = self._between, len(self._between)
        strings: list[bytes] = []
        start = position + len(self._before)
        most = start + _MOST_BYTES
        while start < most:
            end = body.find(b'"', start)
            if not body.startswith(between, end):
                letters = _LETTERS.match(body, start)
                end = letters.end() if letters is not None else start
                if not body.startswith(between, end):
                    break
            strings.append(body[start:end])
            start = end + step
        strings = _leading_strings(strings)
        texts = _read(strings)
        return texts, position + sum(map(len, strings[: len(texts)])) + len(texts) * step


def _leading_strings(parts: list[bytes]) -> list[bytes]:
    """The parts before the first that is not the inside of one JSON string."""
    joined = b"".join(parts)
    if b'"' in joined or b"\\" in joined:
        for number, part in enumerate(parts):
            if not _LETTERS.fullmatch(part):
                return parts[:number]
    return parts


def _read(strings: list[bytes]) -> list[str]:
    """The texts of these JSON strings, given without their quotes; none when one of them is no JSON."""
    try:
        texts: list[str] = orjson.loads(b'["' + b'","'.join(strings) + b'"]') if strings else []
    except ValueError:
        return []
    return texts
