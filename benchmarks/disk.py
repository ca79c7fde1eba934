"""The disk's own limit: open, append, fsync and close of the lines that were captured, and nothing else."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

POOL = 6


@dataclass(frozen=True)
class Disk:
    """Attributes:
    p50_ms: of one line, one thread.
    pool_lines_per_s: of a pool of 6 threads.
    """

    p50_ms: float
    pool_lines_per_s: float


class DiskMeter:
    """Adds up the phases of a scenario; every phase writes new files below `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.times: list[float] = []
        self.pool_rates: list[float] = []

    def one_thread(self, lines: Iterable[tuple[str, bytes]]) -> None:
        """Append each (file, line) after the other."""
        folder = self._new_folder()
        for name, line in lines:
            began = time.perf_counter()
            append(folder / name, line)
            self.times.append(time.perf_counter() - began)

    def pool(self, lines: Sequence[tuple[str, bytes]]) -> float:
        """Append them with a pool of 6 threads; lines per second."""
        folder = self._new_folder()
        with ThreadPoolExecutor(POOL) as pool:
            list(pool.map(append, [folder / f"warm-{number}" for number in range(POOL)], [b"\n"] * POOL))
            paths = [folder / name for name, _ in lines]
            began = time.perf_counter()
            list(pool.map(append, paths, [line for _, line in lines]))
            rate = len(lines) / (time.perf_counter() - began)
        self.pool_rates.append(rate)
        return rate

    def disk(self) -> Disk:
        """The figures so far."""
        return Disk(p50_ms=1e3 * statistics.median(self.times), pool_lines_per_s=statistics.median(self.pool_rates))

    def _new_folder(self) -> Path:
        folder = self.directory / f"{len(list(self.directory.iterdir()))}"
        folder.mkdir()
        return folder


def append(path: Path, line: bytes) -> None:
    """One durable line."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        view = memoryview(line)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
