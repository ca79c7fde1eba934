"""Reading a capture file of any size, line by line, in memory that one line needs.

A file is read up to the length that it has under the shared lock, where every append is whole. The lock is given
back before the first line is parsed: what stands before that length never changes (files are append-only), and a
reader that takes its time must not keep a model server from writing.

A line is judged as the reference judges it: one JSON value that orjson accepts, so NaN, bad UTF-8, lone
surrogates, a byte-order mark and zero bytes make it damaged, and an integer beyond 64 bits is read as a float.
Source: "The store" of the capture format; every case of kind `store_read` of the conformance corpus.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from otel_gym_jsonl import locks
from otel_gym_jsonl.errors import DamagedRecordError

_BUFFER = 256 * 1024
_PIECE = 1024 * 1024
_LOCK_POLL_S = 0.05
_LOOK = 256
# What a JSON value can begin with. A line that begins with anything else (a run of zero bytes that a crash left
# behind, say) is passed over without being kept, however long it is.
_FIRST_BYTES = b'{["-0123456789tfn'


class LineTooLongError(ValueError):
    """A line is longer than the caller of `iter_records` wanted to parse."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a capture file that is not blank.

    Attributes:
        index: place among the lines that are not blank, damaged ones included, from 0: the `call_index`.
        number: place among all lines, from 1, as an editor counts.
        size: length in bytes, without the newline.
        value: the JSON value; None when the line could not be read as JSON (or is the JSON `null`).
        damage: why this is no record, None for a record.
        error: what the decoder raised (LineTooLongError where it was not asked), None when the line is JSON.
        ended: whether a newline follows; without one it is the torn end of a write, or of a hand-made file.
        torn: whether it is what a killed writer leaves: no JSON, and without a newline or else (the next append has put
            one behind it) the beginning of an object.
    """

    index: int
    number: int
    size: int
    value: Any
    damage: str | None
    error: ValueError | None
    ended: bool
    torn: bool

    @property
    def record(self) -> dict[str, Any] | None:
        """The record, None when the line is damaged."""
        return self.value if isinstance(self.value, dict) else None


def iter_records(
    path: str | os.PathLike[str], *, lock_timeout_s: float | None = None, max_line_bytes: int | None = None
) -> Iterator[Line]:
    """Yield a `Line` for each line of a capture file that is not blank, in append order.

    Args:
        path: the file; one that does not exist has no lines.
        lock_timeout_s: how long to wait for the shared lock, in seconds; None waits for as long as it takes.
        max_line_bytes: a longer line is not parsed but yielded as damaged, so that memory has a bound whatever
            the file holds; None parses every line.

    Raises:
        TimeoutError: another process kept the file locked.
        OSError: the file cannot be opened or read.
    """
    try:
        file = Path(path).open("rb", buffering=_BUFFER)  # noqa: SIM115 - closed by the with below
    except FileNotFoundError:
        return
    with file:
        end = _length_under_lock(file, lock_timeout_s)
        for index, (number, size, data, error, ended) in enumerate(_lines(file, end, max_line_bytes)):
            value: Any = None
            damage: str | None = None
            torn = False
            if error is None:
                try:
                    value = _parse(data)
                except orjson.JSONDecodeError as exc:
                    error = exc
            if error is not None:
                cut_off = _cut_off(data)
                torn = not ended or cut_off is not None
                error = cut_off or error
                damage = _why(error, torn)
            elif not isinstance(value, dict):
                damage = f"a JSON {_json_type(value)} where an object is expected"
            yield Line(index, number, size, value, damage, error, ended, torn)


def read(path: str | os.PathLike[str]) -> list[Any]:
    """Every value of a capture file, in append order.

    As in the reference, a line that is JSON but no object is no reason to fail: its value is in the list.

    Raises:
        DamagedRecordError: a line is no JSON.
        OSError: the file cannot be read.
    """
    values = []
    for line in iter_records(path):
        if line.error is not None:
            raise DamagedRecordError(Path(path), line.number, str(line.damage)) from line.error
        values.append(line.value)
    return values


def read_available(path: str | os.PathLike[str]) -> tuple[list[tuple[int, dict[str, Any]]], int]:
    """The records of a capture file with their indices, and the number of damaged lines.

    Raises:
        OSError: the file cannot be read.
    """
    records = []
    invalid = 0
    for line in iter_records(path):
        if (record := line.record) is None:
            invalid += 1
        else:
            records.append((line.index, record))
    return records, invalid


def _length_under_lock(file: BinaryIO, timeout_s: float | None) -> int:
    """The length of the file while nobody is in the middle of an append."""
    deadline = time.monotonic() + (timeout_s or 0.0)
    while True:
        try:
            locks.lock(file.fileno(), shared=True, wait=timeout_s is None)
            break
        except BlockingIOError as exc:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{file.name} stayed locked by another process for {timeout_s:g} s") from exc
            time.sleep(_LOCK_POLL_S)
    try:
        return os.fstat(file.fileno()).st_size
    finally:
        locks.unlock(file.fileno())


def _lines(
    file: BinaryIO, end: int, max_line_bytes: int | None
) -> Iterator[tuple[int, int, bytes | bytearray, ValueError | None, bool]]:
    """(number, size, content, why the content was not kept, whether a newline ended it) of each non-blank line."""
    position = number = 0
    while position < end:
        number += 1
        piece = file.readline(min(_PIECE, end - position))
        if not piece:  # cut from outside, below the length that was seen
            return
        position += len(piece)
        ended = piece.endswith(b"\n")
        if ended or position == end:
            if not piece.isspace():
                yield number, len(piece) - ended, piece, _refused(piece, len(piece) - ended, max_line_bytes), ended
            continue
        # A line longer than one piece: collected, or only counted once it is refused.
        size = 0
        kept = bytearray()
        unread: ValueError | None = None
        while piece:
            size += len(piece)
            ended = piece.endswith(b"\n")
            if unread is None and (kept or not piece.isspace()):
                unread = _refused(kept or piece, size - ended, max_line_bytes)
                if unread is None:
                    kept += piece
                else:
                    kept = bytearray()
            if ended or position >= end:
                break
            piece = file.readline(min(_PIECE, end - position))
            position += len(piece)
        if kept or unread is not None:
            yield number, size - ended, kept, unread, ended


def _refused(start: bytes | bytearray, size: int, max_line_bytes: int | None) -> ValueError | None:
    """Why a line that begins like this, and is so long by now, is not worth parsing."""
    first = start[:_LOOK].lstrip()[:1]
    if first == b"\0":
        return json.JSONDecodeError("it begins with zero bytes, as a crash of the machine leaves them", "", 0)
    if first and first not in _FIRST_BYTES:
        return json.JSONDecodeError(f"it begins with the byte 0x{first.hex()}, as no JSON does", "", 0)
    if max_line_bytes is not None and size > max_line_bytes:
        return LineTooLongError(f"longer than {max_line_bytes} bytes, not looked into")
    return None


def _parse(data: bytes | bytearray) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        # The reference strips lines of all that Python calls white space, which is more than JSON allows.
        stripped = data.strip()
        if len(stripped) == len(data):
            raise
        return orjson.loads(stripped)


def _cut_off(data: bytes | bytearray) -> orjson.JSONDecodeError | None:
    """Of a line that is no JSON, that only its end is missing: with more behind it, it could become an object."""
    if data[:1] != b"{":
        return None
    end = len(data) - data.endswith(b"\n")
    try:
        orjson.loads(memoryview(data)[: end - _cut_character(data[max(0, end - 3) : end])])
    except orjson.JSONDecodeError as exc:
        return exc if exc.pos == len(exc.doc) > 0 else None
    return None


def _cut_character(tail: bytes | bytearray) -> int:
    """How many bytes at the end are a character of UTF-8 that lacks its last ones."""
    for size in range(1, len(tail) + 1):
        first = tail[-size]
        if 0xC2 <= first <= 0xF4:  # all that a character of several bytes begins with
            return size if size < (2 if first < 0xE0 else 3 if first < 0xF0 else 4) else 0
    return 0


def _why(error: ValueError, torn: bool) -> str:
    what = str(error)
    if isinstance(error, json.JSONDecodeError):  # orjson's is one; it says "line 1" of every line
        what = f"{error.msg} at character {error.pos + 1:,}" if error.doc else error.msg
    return what if not torn else f"cut off in mid-write: {what}"


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return "text" if isinstance(value, str) else "array"
