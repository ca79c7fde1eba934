"""Calls that stand twice in a capture directory, found in memory that does not grow with it.

A filter of fixed size says of each id, as it passes, whether it may have been there before: never no for one that was.
Only where it says so are the files read a second time, and each of those ids is looked for exactly.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_FILTER_BITS = 1 << 28
MAX_SUSPECTS = 131_072

_POSITIONS = struct.Struct(">4I")


class SeenIds:
    """A Bloom filter of ids of 16 bytes: 32 MiB, of which a small directory touches little.

    Wrong about one new id in 20,000,000 after a million, about one in 2,700 after ten million.
    """

    def __init__(self, bits: int = _FILTER_BITS) -> None:
        self._mask = bits - 1
        self._bits = mmap.mmap(-1, bits // 8)

    def add(self, call_id: bytes) -> bool:
        """Take an id in; True if it may have been there, False if it was not."""
        seen = True
        for number in _POSITIONS.unpack(call_id):
            position = number & self._mask
            byte, bit = position >> 3, 1 << (position & 7)
            before = self._bits[byte]
            if not before & bit:
                self._bits[byte] = before | bit
                seen = False
        return seen


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call stands: a file's name, the number of the line, and whether the file begins with it."""

    file: str
    line: int
    is_first: bool


@dataclass(frozen=True, slots=True)
class Repeat:
    """A call that stands in a second place; `begins_copy` when both files begin with it."""

    call_id: bytes
    place: Place
    first: Place
    begins_copy: bool


class RepeatedCalls:
    """Show it every call once (`pass_by`), then, where there are suspects, once more (`repeats`).

    Attributes:
        suspects: ids that may stand in two places, at most `MAX_SUSPECTS`.
        too_many: whether there were more.
    """

    def __init__(self, seen: SeenIds | None = None) -> None:
        self._seen = SeenIds() if seen is None else seen
        self.suspects: set[bytes] = set()
        self.too_many = False

    def pass_by(self, call_id: bytes) -> None:
        """The first time."""
        if not self._seen.add(call_id) or call_id in self.suspects:
            return
        if len(self.suspects) < MAX_SUSPECTS:
            self.suspects.add(call_id)
        else:
            self.too_many = True

    def repeats(self, calls: Iterable[tuple[bytes, Place]]) -> Iterator[Repeat]:
        """The second time: which of them do stand in two places. Of a copied file only its first call is one."""
        first_places: dict[bytes, Place] = {}
        copies: dict[str, str] = {}
        for call_id, place in calls:
            if call_id not in self.suspects:
                continue
            first = first_places.setdefault(call_id, place)
            if first is place:
                continue
            begins_copy = first.is_first and place.is_first and first.file != place.file
            if begins_copy:
                copies = {place.file: first.file}  # files come one after the other
            elif copies.get(place.file) == first.file:
                continue
            yield Repeat(call_id, place, first, begins_copy)
