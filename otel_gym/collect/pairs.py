"""A set of (task, rollout) pairs, one bit for each where tasks are numbered in a row."""

from __future__ import annotations

_BITS = 15
_BYTES = (1 << _BITS) // 8


class PairSet:
    """Pairs of indices from 0 on. A million tasks in a row take 125 kB for each rollout index."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[int, int], bytearray] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, pair: tuple[int, int]) -> bool:
        task, rollout = pair
        block = self._blocks.get((rollout, task >> _BITS))
        return block is not None and bool(block[(task >> 3) % _BYTES] & 1 << (task & 7))

    def add(self, pair: tuple[int, int]) -> bool:
        """Take a pair in; whether it is new."""
        if pair in self:
            return False
        task, rollout = pair
        block = self._blocks.setdefault((rollout, task >> _BITS), bytearray(_BYTES))
        block[(task >> 3) % _BYTES] |= 1 << (task & 7)
        self._size += 1
        return True
