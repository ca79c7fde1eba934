"""The scenarios that run in process, and their targets."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from benchmarks import bodies
from benchmarks.bench import Bench, Check, Comparison, Outcome, capture, captured_lines
from benchmarks.disk import DiskMeter
from benchmarks.exchange import Client, Exchange, ToyModel, lifespan
from benchmarks.meters import Meter
from otel_gym.asgi import App

LAG_P99_MS = 3.0  # above the bare application's
LAG_WORST_MS = 5.0  # above its worst, and for each MiB of the largest body
LAG_WORST_MS_PER_MIB = 4.0
LINES_OF_ONE_THREAD = 60
BARE_SECONDS = 0.4  # a shorter phase says little of the lag

Load = Callable[[App, Exchange, str, list[float]], Awaitable[None]]
"""Makes one round's calls of an application, of rollouts whose ids begin so; adds each latency in seconds."""


@dataclass(frozen=True)
class Scenario:
    """Calls of one kind.

    Attributes:
        title: for the table.
        exchange: makes request and answer.
        load: makes a round's calls, given the bench.
        rounds: how often bare, captured and disk take turns.
        added_p50_ms, pool_share: targets, where there are any.
    """

    title: str
    exchange: Callable[[], Exchange]
    load: Callable[[Bench], Load]
    rounds: int
    added_p50_ms: float | None = None
    pool_share: float | None = None


def one_client(calls: int, seconds: float = 0.25) -> Callable[[Bench], Load]:
    """One call after the other, of one rollout: so many, and for so long."""

    def of(bench: Bench) -> Load:
        async def load(app: App, exchange: Exchange, rollout_id: str, latencies: list[float]) -> None:
            until = time.perf_counter() + seconds * bench.scale
            made = 0
            while made < bench.times(calls) or time.perf_counter() < until:
                latencies.append(await Client(exchange, rollout_id).call(app))
                made += 1

        return load

    return of


def rollouts_at_once(rollouts: int, calls: int) -> Callable[[Bench], Load]:
    """All rollouts at once, each one call after the other."""

    def of(bench: Bench) -> Load:
        async def load(app: App, exchange: Exchange, prefix: str, latencies: list[float]) -> None:
            async def rollout(rollout_id: str) -> None:
                latencies.extend([await Client(exchange, rollout_id).call(app) for _ in range(calls)])

            await asyncio.gather(*(rollout(f"{prefix}-{number}") for number in range(bench.times(rollouts))))

        return load

    return of


def bursts(calls: int, times: int) -> Callable[[Bench], Load]:
    """All calls of one rollout at once; again with the next rollout."""

    def of(bench: Bench) -> Load:
        async def load(app: App, exchange: Exchange, prefix: str, latencies: list[float]) -> None:
            for burst in range(times):
                clients = [Client(exchange, f"{prefix}-{burst}") for _ in range(bench.times(calls))]
                latencies += await asyncio.gather(*(client.call(app) for client in clients))

        return load

    return of


SCENARIOS = {
    "a": Scenario("8 KB → 4 KB, one client", bodies.small, one_client(100), 6, added_p50_ms=0.4),
    "b": Scenario("400 KB → 20 KB", bodies.long_conversation, one_client(30), 6, added_p50_ms=2.0),
    "c": Scenario("chat stream of 500 chunks", lambda: bodies.chat_stream(500), one_client(20), 6, added_p50_ms=2.0),
    "d": Scenario("chat stream of 5,000", lambda: bodies.chat_stream(5000), one_client(4), 5, added_p50_ms=18.0),
    "e": Scenario("256 rollouts of 20 calls at once", bodies.small, rollouts_at_once(256, 20), 3, pool_share=80.0),
    "f": Scenario("1 rollout, 256 calls at once", bodies.small, bursts(256, 5), 4, pool_share=120.0),
}


async def run(bench: Bench, name: str) -> Outcome:
    """Run one of a to f."""
    scenario = SCENARIOS[name]
    exchange = scenario.exchange()
    found = await compare(bench, name, scenario.title, exchange, scenario.load(bench), scenario.rounds)
    checks = list(lag_checks(found, exchange))
    if scenario.pool_share is not None and found.pool_share is not None:
        share = 100 * found.pool_share
        checks.insert(0, Check(name, "calls/s, share of the pool's lines/s", share, scenario.pool_share, "%", True))
    if scenario.added_p50_ms is not None:
        checks.insert(0, Check(name, "added p50", found.added_p50_ms, scenario.added_p50_ms, "ms"))
    return Outcome((found,), tuple(checks))


async def run_large_event(bench: Bench) -> Outcome:
    """g: one SSE event in pieces of 4 KiB; its cost beyond the bare application, and whether that is linear."""
    found = []
    for size in (1, 2, 4):
        exchange = bodies.one_large_event(size * bodies.MIB)
        load = one_client(3, seconds=0.1)(bench)
        found.append(await compare(bench, "g", f"one SSE event of {size} MB", exchange, load, 3))
    checks = [
        Check("g", "added p50, 4 MB", found[-1].added_p50_ms, 100.0, "ms"),
        Check("g", "added p50 of 4 MB over that of 1 MB", found[-1].added_p50_ms / found[0].added_p50_ms, 5.0, "times"),
        *lag_checks(found[-1], bodies.one_large_event(4 * bodies.MIB)),
    ]
    return Outcome(tuple(found), tuple(checks))


async def compare(
    bench: Bench, name: str, title: str, exchange: Exchange, load: Load, rounds: int, *, with_disk: bool = True
) -> Comparison:
    """Let bare application, captured application and disk take turns under the same load."""
    bare_meter, captured_meter = Meter(), Meter()
    shares = []
    with bench.folder() as calls, bench.folder() as lines_folder:
        disk = DiskMeter(lines_folder)
        bare: App = ToyModel(exchange)
        captured = capture(bare, calls)
        async with lifespan(captured):
            for app in (bare, captured):
                await Client(exchange, "warm-up").call(app)
            # Collections of what was imported would stop both sides for 20 ms, now here, now there. Servers freeze it
            # too (vLLM does); what the calls leave is still collected, and counts.
            gc.collect()
            gc.freeze()
            for number in range(rounds):
                prefix = f"{name}-{number}"
                async with bare_meter.phase() as phase:
                    while phase.elapsed() < BARE_SECONDS * bench.scale:
                        await load(bare, exchange, prefix, phase.latencies)
                async with captured_meter.phase() as phase:
                    await load(captured, exchange, prefix, phase.latencies)
                lines = captured_lines(calls, prefix, len(phase.latencies))
                if with_disk:
                    disk.one_thread(lines[: bench.times(LINES_OF_ONE_THREAD, least=2)])
                    shares.append(phase.calls_per_s / disk.pool(lines))
        gc.unfreeze()
        await captured.aclose()
    pairs = zip(bare_meter.phases, captured_meter.phases, strict=True)
    return Comparison(
        scenario=name,
        title=title,
        bare=bare_meter.side(),
        captured=captured_meter.side(),
        disk=disk.disk() if with_disk else None,
        added_p50_ms=1e3 * statistics.median(captured.p50_s - bare.p50_s for bare, captured in pairs),
        pool_share=statistics.median(shares) if shares else None,
    )


def lag_checks(found: Comparison, exchange: Exchange) -> Iterator[Check]:
    """How much later than beside the bare application a sleeper may wake."""
    p99 = found.captured.lag_p99_ms - found.bare.lag_p99_ms
    yield Check(found.scenario, "loop lag p99 above bare", p99, LAG_P99_MS, "ms")
    worst = found.captured.lag_worst_ms - found.bare.lag_worst_ms
    limit = LAG_WORST_MS + LAG_WORST_MS_PER_MIB * exchange.largest_body_mb
    yield Check(found.scenario, "loop lag worst above bare", worst, limit, "ms")
