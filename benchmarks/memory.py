"""Memory, in processes of its own: the peak that a large request needs, and what many calls leave behind.

python -m benchmarks.memory peak|growth bare|captured DIRECTORY [CALLS]
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from pathlib import Path

from benchmarks import bodies
from benchmarks.bench import Bench, Check, Outcome, capture
from benchmarks.exchange import Client, ToyModel, lifespan
from benchmarks.meters import peak_mib, reset_peak, resident_mib
from benchmarks.scenarios import compare, lag_checks, one_client
from otel_gym.asgi import App

CLIENTS = 32
CALLS_OF_A_ROLLOUT = 20
PEAK_LIMIT = 3.0  # times the body
GROWTH_LIMIT_MIB = 4.0  # over 90,000 calls: less than 50 bytes each


async def run_peak(bench: Bench) -> Outcome:
    """h: a 16 MB request; peak memory beyond the bare application's, and the loop's lag."""
    exchange = bodies.huge_request()
    found = await compare(bench, "h", "16 MB → 4 KB", exchange, one_client(3)(bench), 3)
    with bench.folder() as folder:
        peaks = {side: _measure("peak", side, folder)["peak_mib"] for side in ("bare", "captured")}
    body = len(exchange.request) / bodies.MIB
    added = peaks["captured"] - peaks["bare"]
    checks = (Check("h", "peak memory beyond bare", added / body, PEAK_LIMIT, "bodies"), *lag_checks(found, exchange))
    note = f"h: peak memory of one call: bare +{peaks['bare']:.0f} MiB, captured +{peaks['captured']:.0f} MiB"
    return Outcome((found,), checks, (note,))


def run_growth(bench: Bench) -> Outcome:
    """Memory after 10,000 small calls and after 100,000."""
    calls = bench.times(100_000)
    with bench.folder() as folder:
        found = _measure("growth", "captured", folder, calls)
    growth = found["last_mib"] - found["first_mib"]
    what = f"growth from {calls // 10:,} to {calls:,} calls"
    note = f"memory: {found['first_mib']:.1f} MiB after {calls // 10:,} calls, {found['last_mib']:.1f} after {calls:,}"
    return Outcome(checks=(Check("memory", what, growth, GROWTH_LIMIT_MIB, "MiB"),), notes=(note,))


def _measure(what: str, side: str, folder: Path, calls: int = 0) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.memory", what, side, str(folder), str(calls)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=Path(__file__).resolve().parent.parent)
    found: dict[str, float] = json.loads(done.stdout)
    return found


async def _peak(side: str, folder: Path) -> dict[str, float]:
    exchange, small = bodies.huge_request(), bodies.small()
    app: App = ToyModel(small)  # the answers have the same size
    if side == "captured":
        app = capture(app, folder)
    async with lifespan(app):
        for _ in range(20):
            await Client(small, "warm-up").call(app)
        gc.collect()
        reset_peak()
        before = resident_mib()
        await Client(exchange, "large").call(app)
        return {"peak_mib": peak_mib() - before}


async def _growth(side: str, folder: Path, calls: int) -> dict[str, float]:
    exchange = bodies.tiny()
    app: App = ToyModel(exchange)
    if side == "captured":
        app = capture(app, folder)
    made = 0

    async def until(count: int) -> float:
        async def client() -> None:
            nonlocal made
            while made < count:
                made += 1
                await Client(exchange, f"m-{made // CALLS_OF_A_ROLLOUT}").call(app)

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        gc.collect()
        return resident_mib()

    async with lifespan(app):
        return {"first_mib": await until(calls // 10), "last_mib": await until(calls)}


def main() -> None:
    """The child."""
    what, side, folder, calls = sys.argv[1:]
    measure = _peak(side, Path(folder)) if what == "peak" else _growth(side, Path(folder), int(calls))
    print(json.dumps(asyncio.run(measure)))


if __name__ == "__main__":
    main()
