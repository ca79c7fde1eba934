"""A short way for regular streams: events that differ from each other in one string only.

Nearly all chunks of a stream repeat the same bytes around a few new letters. Once one of them has been parsed, the
others need not be: the letters stand between the same two byte strings. Whatever differs in anything else, or holds an
escape, is parsed as ever; a property in the tests says that both ways agree.
"""

from __future__ import annotations

_MOST_PATTERNS = 64  # that one stream may go through before nothing is learned any more
_NOTHING = b"\xff"  # begins no JSON


class RegularText:
    """The frame around the text of a stream's regular events.

    Args:
        key: of the string that changes; it must stand once in an event for the event to be a pattern.
    """

    __slots__ = ("_after", "_before", "_end", "_least", "_openings", "_patterns", "_start")

    def __init__(self, key: str) -> None:
        self._openings = (f'"{key}":"'.encode(), f'"{key}": "'.encode())
        self._patterns = 0
        self._frame(_NOTHING, _NOTHING)

    def _frame(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._after = after
        self._start = len(before)
        self._end = -len(after)
        self._least = len(before) + len(after)

    def text(self, data: bytes) -> str | None:
        """The text of an event that is like the learned one in all else; None for any other."""
        if data.startswith(self._before) and data.endswith(self._after) and len(data) >= self._least:
            letters = data[self._start : self._end]
            if b'"' not in letters and b"\\" not in letters:
                try:
                    text = letters.decode()
                except UnicodeDecodeError:
                    return None
                if text.isprintable():  # a raw control character is no JSON
                    return text
        return None

    def forget(self) -> None:
        """Something else came in between: the next event is parsed again."""
        self._frame(_NOTHING, _NOTHING)

    def learn(self, data: bytes, text: str) -> bool:
        """Take a parsed event, whose only string under the key is this text, as the pattern, if it can be one."""
        if self._patterns >= _MOST_PATTERNS:
            return False
        self._patterns += 1
        for opening in self._openings:
            if data.count(opening) == 1:
                before, _, rest = data.partition(opening)
                letters = text.encode("utf-8", "replace")
                if rest.startswith(letters + b'"'):
                    self._frame(before + opening, rest[len(letters) :])
                    return True
        return False
