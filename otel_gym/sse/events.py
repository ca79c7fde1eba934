"""Server-sent events as model servers write them: a whole body read as events.

Shape (WHATWG HTML, "Server-sent events"): lines end with LF, CR LF or CR in any mixture; a blank line ends an event; a
line that begins with a colon is a comment; one byte-order mark at the very start belongs to the encoding. Beyond the
standard, as streams need it whose end may be missing or odd: an event without data counts, and so does the last one
without its blank line; data lines that make no JSON together but an object each are an event each; a field named
`error` whose value is a JSON object is kept (`divergences.md`, rows 8, 15, 28, 29).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson

from otel_gym.sse.regular import RegularRuns
from otel_gym_jsonl import json_text

BOM: Final = b"\xef\xbb\xbf"
DONE: Final = b"[DONE]"
"""What stands in place of JSON in the last event of many streams."""

_PAUSE_BYTES: Final = 1 << 16
_PAUSE_BYTES_OF_TEXTS: Final = 1 << 18
_LONG_BYTES: Final = 1 << 20  # of an event whose reading is its own affair


class Event:
    """One event of a stream.

    Attributes:
        name: the value of its `event:` line without surrounding space, `""` when there is none.
        data: its data lines, joined by LF.
        error: the JSON object of a field named `error` (row 29), as bytes; None when there is none.
        payload: the JSON value of `data`; None when it is unreadable (or a JSON null).
    """

    __slots__ = ("_plain", "data", "error", "name", "payload")

    payload: Any

    def __init__(self, name: str, data: bytes, error: bytes | None = None, plain: bool = False) -> None:
        self.name = name
        self.data = data
        self.error = error
        self._plain = plain

    def __getattr__(self, attribute: str) -> Any:
        """Read the payload when it is first asked for: that of many events (images of several MB) never need be."""
        if attribute != "payload":
            raise AttributeError(attribute)
        payload = self.payload = _read_plain(self.data) if self._plain else read_json(self.data)
        return payload

    @property
    def type(self) -> str:
        """The payload's own `type`, `""` when it has none that is a string."""
        payload = self.payload
        own = payload.get("type") if isinstance(payload, dict) else None
        return own if isinstance(own, str) else ""

    @property
    def kind(self) -> str:
        """What the event says it is: its name, else its payload's `type` (rows 11 and 15)."""
        # "message" is what the standard calls an event without a name; some servers write it out.
        return self.name if self.name not in ("", "message") else self.type

    def __repr__(self) -> str:
        return f"Event(name={self.name!r}, data={self.data!r}, error={self.error!r})"


class EventStream:
    """The events of a whole body, in order, read once.

    The last one counts without its closing blank line too, unless the body was cut within its JSON.

    Args:
        body: as it came, decoded.
        pause: called after every 64 KB or so, and after 256 KB of events that are read in one go.
    """

    def __init__(self, body: bytes, pause: Callable[[], None] | None = None) -> None:
        if body.startswith(BOM):
            body = body[len(BOM) :]
        if b"\r" in body:
            body = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._body = body
        self._position = 0
        self._pause = pause
        self._paused_at = 0
        self._simple: bytes | None = None  # the last block, where it is one line of data, with or without a name
        self._regular = RegularRuns(body)

    def __iter__(self) -> Iterator[Event]:
        body = self._body
        plain, looked_at = True, 0
        while (end := _end_of_block(body, self._position)) >= 0:
            start = self._position
            if end > looked_at:  # one look for long numbers at many events saves one at each
                looked_at = max(end, start + _PAUSE_BYTES)
                plain = looked_at - start < _LONG_BYTES and not json_text.has_long_number(body[start:looked_at])
            block = body[start:end]
            self._position = end + 2
            if self._position - self._paused_at >= _PAUSE_BYTES:
                self._rest()
            if block[:6] == b"data: " and b"\n" not in block:
                self._simple = block
                yield Event("", block[6:], None, plain)
                continue
            if block[:7] == b"event: ":
                head, _, data = block.partition(b"\n")
                if data[:6] == b"data: " and b"\n" not in data:
                    self._simple = block
                    if len(data) >= _PAUSE_BYTES:
                        self._rest()
                    yield Event(head[7:].strip().decode("utf-8", "replace"), data[6:], None, plain)
                    continue
            self._simple = None
            yield from block_events(block)
        self._simple = None
        for event in block_events(body[self._position :]):
            if event.payload is not None or not event.data.lstrip().startswith(b"{"):
                yield event

    def alike(self, key: str, text: str) -> list[str]:
        """The texts of the events that follow and differ from the last one in nothing but its text; they count as read.

        Args:
            key: of the text, which stands once in the last event.
            text: what it is in the last event.
        """
        if self._simple is None or not self._regular.learn(self._simple, key, text):
            return []
        found: list[str] = []
        while True:
            texts, self._position = self._regular.texts(self._position)
            if not texts:
                return found
            found += texts
            if self._position - self._paused_at >= _PAUSE_BYTES_OF_TEXTS:
                self._rest()

    def _rest(self) -> None:
        self._paused_at = self._position
        if self._pause is not None:
            self._pause()


def _end_of_block(body: bytes, start: int) -> int:
    """Where the next blank line's first LF, the end of the block, is; -1 without one.

    Looks for one byte, which is many times as fast in long lines as to look for two.
    """
    end = body.find(b"\n", start)
    while end >= 0 and not body.startswith(b"\n", end + 1):
        end = body.find(b"\n", end + 1)
    return end


def events(body: bytes, pause: Callable[[], None] | None = None) -> EventStream:
    """The events of a whole body; see `EventStream`."""
    return EventStream(body, pause)


def block_events(block: bytes) -> Iterator[Event]:
    """The events that the lines between two blank lines make: mostly one, none for comments alone.

    `block` has LF line ends only, and no byte-order mark that belongs to the encoding.
    """
    name = ""
    lines: list[tuple[str, bytes]] = []
    errors: list[bytes] = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            lines.append((name, value.removeprefix(b" ")))
        elif field == b"event":
            name = value.strip().decode("utf-8", "replace")
        elif field == b"error":
            errors.append(value.removeprefix(b" "))
    error = next((value for value in (b"\n".join(errors), *errors) if _is_object(value)), None) if errors else None
    if len(lines) > 1:
        whole = Event(name, b"\n".join(value for _, value in lines), error)
        parts = [(own, value) for own, value in lines if value.strip()]
        if len(parts) > 1 and whole.payload is None and all(_is_object(v) or v.strip() == DONE for _, v in parts):
            # A blank line went missing: each line belongs to the name in force there, an error field to the last.
            for own, value in parts[:-1]:
                yield Event(own or name, value)
            yield Event(parts[-1][0] or name, parts[-1][1], error)
        else:
            yield whole
    elif lines or name or error is not None:
        yield Event(name, lines[0][1] if lines else b"", error)


def read_json(data: bytes) -> Any:
    """The JSON value of an event's data, bad UTF-8 replaced by U+FFFD; None when it is no JSON."""
    if not data or data == DONE:
        return None  # the two that are no JSON in good streams
    try:
        return json_text.loads(data)
    except ValueError:
        pass
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _read_plain(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except ValueError:
        return read_json(data)


def _is_object(data: bytes) -> bool:
    return isinstance(read_json(data), dict)
