"""What is measured: how late the event loop is, CPU time, resident memory."""

from __future__ import annotations

import asyncio
import contextlib
import math
import resource
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TICK_S = 0.001


@dataclass(frozen=True)
class Side:
    """What one application, bare or captured, needed for the calls of a scenario.

    Attributes:
        calls: how many were made.
        p50_ms, p99_ms: of one call, to its last byte.
        calls_per_s: over the whole of the phases.
        cpu_ms: process time (all threads) for one call; the sleeper's own share is in it.
        lag_p99_ms, lag_worst_ms: how late a sleeper of 1 ms woke.
    """

    calls: int
    p50_ms: float
    p99_ms: float
    calls_per_s: float
    cpu_ms: float
    lag_p99_ms: float
    lag_worst_ms: float


@dataclass
class Phase:
    """One stretch of calls of one side: `latencies` in seconds, and what the whole of it took."""

    latencies: list[float] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    wall_s: float = 0.0
    cpu_s: float = 0.0

    def elapsed(self) -> float:
        """Seconds since it began."""
        return time.perf_counter() - self.began

    @property
    def p50_s(self) -> float:
        """Median latency."""
        return statistics.median(self.latencies)

    @property
    def calls_per_s(self) -> float:
        """Calls over wall time."""
        return len(self.latencies) / self.wall_s


class Meter:
    """Adds up the phases of one side.

    Attributes:
        phases: in order.
        lateness: of each waking of a sleeper of 1 ms, seconds.
    """

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.lateness: list[float] = []

    @contextlib.asynccontextmanager
    async def phase(self) -> AsyncIterator[Phase]:
        """Measure what runs inside, which adds its latencies to the phase."""
        sleeper = asyncio.ensure_future(self._sleep())
        await asyncio.sleep(2 * TICK_S)
        phase, cpu = Phase(), time.process_time()
        try:
            yield phase
        finally:
            phase.wall_s = phase.elapsed()
            phase.cpu_s = time.process_time() - cpu
            await asyncio.sleep(2 * TICK_S)  # a stall in the last call is seen by the waking after it
            sleeper.cancel()
            await asyncio.wait([sleeper])
            self.phases.append(phase)

    async def _sleep(self) -> None:
        while True:
            due = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            self.lateness.append(max(0.0, time.perf_counter() - due))

    def side(self) -> Side:
        """The figures so far."""
        latencies = [latency for phase in self.phases for latency in phase.latencies]
        return Side(
            calls=len(latencies),
            p50_ms=1e3 * statistics.median(latencies),
            p99_ms=1e3 * percentile(latencies, 99),
            calls_per_s=len(latencies) / sum(phase.wall_s for phase in self.phases),
            cpu_ms=1e3 * sum(phase.cpu_s for phase in self.phases) / len(latencies),
            lag_p99_ms=1e3 * percentile(self.lateness, 99),
            lag_worst_ms=1e3 * max(self.lateness),
        )


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of the values do not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def resident_mib() -> float:
    """Memory of this process now, MiB; where /proc is missing, its peak."""
    return _status_mib("VmRSS")


def peak_mib() -> float:
    """The most memory that this process had since `reset_peak`, MiB; elsewhere than on Linux since its start."""
    return _status_mib("VmHWM")


def reset_peak() -> None:
    """Let the peak begin anew (Linux; a container may forbid it, then the peak is that since the start)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _status_mib(name: str) -> float:
    try:
        status = Path("/proc/self/status").read_text()
    except FileNotFoundError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
    return int(status.split(f"{name}:")[1].split()[0]) / 1024
