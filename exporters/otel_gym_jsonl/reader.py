"""Reading a capture file of any size, line by line, in memory that one line needs.

A file is read up to the length that it has under the shared lock, where every append is whole. The lock is given
back before the first line is parsed: what stands before that length never changes (files are append-only), and a
reader that takes its time must not keep a model server from writing.

A line is judged as the reference judges it: one JSON value that orjson accepts, so NaN, bad UTF-8, lone
surrogates, a byte-order mark and zero bytes make it damaged, and an integer beyond 64 bits is read as a float.
Source: "The store" of the capture format; every case of kind `store_read` of the conformance corpus.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import portalocker

from otel_gym_jsonl.errors import DamagedRecordError

_PIECE = 1024 * 1024
_LOCK_POLL_S = 0.05
# What a JSON value can begin with. A long line that begins with anything else (a run of zero bytes that a crash
# left behind, say) is passed over without being kept.
_FIRST_BYTES = frozenset(b'{["-0123456789tfn')


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a capture file that is not blank.

    Attributes:
        index: place among the lines that are not blank, damaged ones included, from 0: the `call_index`.
        number: place among all lines, from 1, as an editor counts.
        size: length in bytes, without the newline.
        value: the JSON value; None when the line could not be read as JSON (or is the JSON `null`).
        damage: why this is no record, None for a record.
        error: what the decoder raised, None when the line is JSON.
        ended: whether a newline follows; without one it is the torn end of a write, or of a hand-made file.
    """

    index: int
    number: int
    size: int
    value: Any
    damage: str | None
    error: ValueError | None
    ended: bool

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
        file = Path(path).open("rb", buffering=_PIECE)  # noqa: SIM115 - closed by the with below
    except FileNotFoundError:
        return
    with file:
        end = _length_under_lock(file, lock_timeout_s)
        for index, (number, size, data, reason, ended) in enumerate(_lines(file, end, max_line_bytes)):
            value: Any = None
            error: ValueError | None = None
            if reason is None:
                try:
                    value = _parse(data)
                except orjson.JSONDecodeError as exc:
                    error, reason = exc, _why(exc, ended)
                else:
                    if not isinstance(value, dict):
                        reason = f"a JSON {_json_type(value)} where an object is expected"
            else:
                error = ValueError(reason)
            yield Line(index, number, size, value, reason, error, ended)


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
    flags = portalocker.LockFlags.SHARED
    if timeout_s is not None:
        flags |= portalocker.LockFlags.NON_BLOCKING
    deadline = time.monotonic() + (timeout_s or 0.0)
    while True:
        try:
            portalocker.lock(file, flags)
            break
        except portalocker.AlreadyLocked as exc:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{file.name} stayed locked by another process for {timeout_s:g} s") from exc
            time.sleep(_LOCK_POLL_S)
        except portalocker.LockException as exc:
            raise OSError(f"cannot lock {file.name}: {exc}") from exc
    try:
        return os.fstat(file.fileno()).st_size
    finally:
        portalocker.unlock(file)


def _lines(
    file: BinaryIO, end: int, max_line_bytes: int | None
) -> Iterator[tuple[int, int, bytes | bytearray, str | None, bool]]:
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
                yield number, len(piece) - ended, piece, None, ended
            continue
        # A line longer than one piece.
        size = 0
        kept = bytearray()
        reason: str | None = None
        while piece:
            size += len(piece)
            if reason is None and (kept or not piece.isspace()):
                if not kept and piece.lstrip()[0] not in _FIRST_BYTES:
                    reason = f"it begins with the byte 0x{piece.lstrip()[0]:02x}, no JSON does"
                elif max_line_bytes is not None and size > max_line_bytes:
                    reason = f"longer than {max_line_bytes} bytes, not looked into"
                    kept = bytearray()
                else:
                    kept += piece
            ended = piece.endswith(b"\n")
            if ended or position >= end:
                break
            piece = file.readline(min(_PIECE, end - position))
            position += len(piece)
        if kept or reason is not None:
            yield number, size - ended, kept, reason, ended


def _parse(data: bytes | bytearray) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        # The reference strips lines of all that Python calls white space, which is more than JSON allows.
        stripped = data.strip()
        if len(stripped) == len(data):
            raise
        return orjson.loads(stripped)


def _why(exc: orjson.JSONDecodeError, ended: bool) -> str:
    return str(exc) if ended else f"cut off in mid-write: {exc}"


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return "text" if isinstance(value, str) else "array"
