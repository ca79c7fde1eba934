"""What the writer says of a record: the span tells by it where its full truth lies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Receipt:
    """Of one line of a capture file, as written.

    Attributes:
        durable: the line is on its disk, fsynced; when it is not, the rest is None.
        file: name of the capture file, without its directory.
        bytes: length of the line, its newline included.
        sha256: of the line, its newline included; 64 lower-case hex characters.
    """

    durable: bool
    file: str | None = None
    bytes: int | None = None
    sha256: str | None = None
