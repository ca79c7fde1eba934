"""Server-sent events as model servers write them: a whole body read as events.

Shape (WHATWG HTML, "Server-sent events"): lines end with LF, CR LF or CR in any mixture; a blank line ends an event; a
line that begins with a colon is a comment; one byte-order mark at the very start belongs to the encoding. Beyond the
standard, as streams need it whose end may be missing or odd: an event without data counts, and so does the last one
without its blank line; two data lines that are a JSON object each and no JSON together are two events; a field named
`error` whose value is a JSON object is kept (`divergences.md`, rows 8, 15, 28, 29).

Watching a stream while it passes is `terminal_watch`'s business.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from otel_gym_jsonl import json_text

_BOM: Final = b"\xef\xbb\xbf"
_UNREAD: Final = object()


class Event:
    """One event of a stream.

    Attributes:
        name: the value of its `event:` line without surrounding space, `""` when there is none.
        data: its data lines, joined by LF.
        error: the JSON object of a field named `error` (row 29), as bytes; None when there is none.
    """

    __slots__ = ("_payload", "data", "error", "name")

    def __init__(self, name: str, data: bytes, error: bytes | None = None) -> None:
        self.name = name
        self.data = data
        self.error = error
        self._payload: Any = _UNREAD

    @property
    def payload(self) -> Any:
        """The JSON value of `data`; None when it is unreadable (or a JSON null)."""
        if self._payload is _UNREAD:
            self._payload = _read_json(self.data)
        return self._payload

    @property
    def type(self) -> str:
        """The payload's own `type`, `""` when it has none that is a string."""
        payload = self.payload
        kind = payload.get("type") if isinstance(payload, dict) else None
        return kind if isinstance(kind, str) else ""

    @property
    def kind(self) -> str:
        """What the event says it is: its name, else its payload's `type` (rows 11 and 15)."""
        # "message" is what the standard calls an event without a name; some servers write it out.
        return self.name if self.name not in ("", "message") else self.type

    def __repr__(self) -> str:
        return f"Event(name={self.name!r}, data={self.data!r}, error={self.error!r})"


def events(body: bytes) -> Iterator[Event]:
    """The events of a whole body, in order; the last one counts without its closing blank line too."""
    if body.startswith(_BOM):
        body = body[len(_BOM) :]
    if b"\r" in body:
        body = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for block in body.split(b"\n\n"):
        yield from block_events(block)


def block_events(block: bytes) -> Iterator[Event]:
    """The events that the lines between two blank lines make: mostly one, none for comments alone.

    `block` has LF line ends only, no byte-order mark that belongs to the encoding and no blank line except at its start
    or end.
    """
    if block.startswith(b"data: ") and b"\n" not in block:
        yield Event("", block[6:])
        return
    name = ""
    lines: list[tuple[str, bytes]] = []
    errors: list[bytes] = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            lines.append((name, value))
        elif field == b"event":
            name = value.strip().decode("utf-8", "replace")
        elif field == b"error":
            errors.append(value)
    error = next((value for value in (b"\n".join(errors), *errors) if _is_object(value)), None) if errors else None
    if len(lines) > 1:
        joined = Event(name, b"\n".join(value for _, value in lines), error)
        if joined.payload is None and all(_is_object(value) for _, value in lines):
            # An event whose blank line went missing: each line belongs to the name in force there.
            for position, (own, value) in enumerate(lines):
                yield Event(own or name, value, error if position == len(lines) - 1 else None)
            return
        yield joined
    elif lines or name or error is not None:
        yield Event(name, lines[0][1] if lines else b"", error)


def _read_json(data: bytes) -> Any:
    try:
        return json_text.loads(data)
    except ValueError:
        return None


def _is_object(data: bytes) -> bool:
    return isinstance(_read_json(data), dict)
