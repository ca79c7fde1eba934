"""What the mirror costs: the same captured calls with spans sent to a receiver, and without."""

from __future__ import annotations

import asyncio
import gc
import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks import bodies
from benchmarks.bench import Bench, Check, Outcome, captured_lines
from benchmarks.exchange import Client, Exchange, ToyModel, lifespan
from benchmarks.meters import Meter, Side
from benchmarks.receiver import receiver
from benchmarks.scenarios import Scenario, one_client, rollouts_at_once
from otel_gym import CaptureMiddleware, Settings
from otel_gym.provider import Pipeline
from otel_gym_otlp import Mirror

FEWER_CALLS_PERCENT = 10.0
LAG_P99_MS = 1.0

SCENARIOS = {
    "a": Scenario("8 KB → 4 KB, one client", bodies.small, one_client(100, seconds=1.5), 6),
    "c": Scenario("chat stream of 500 chunks", lambda: bodies.chat_stream(500), one_client(20, seconds=1.5), 6),
    "e": Scenario("256 rollouts of 20 calls at once", bodies.small, rollouts_at_once(256, 20), 6),
}


class MissingSpansError(AssertionError):
    """Not every call's span was sent: no figure of such a run means anything."""


async def run(bench: Bench, name: str) -> Outcome:
    """One of a, c, e: mirror off and on take turns, each first every other time."""
    scenario = SCENARIOS[name]
    exchange = scenario.exchange()
    load = scenario.load(bench)
    off_meter, on_meter = Meter(), Meter()
    with receiver() as endpoint, bench.folder() as off_folder, bench.folder() as on_folder:
        off = captured(exchange, off_folder, None)
        on = captured(exchange, on_folder, endpoint)
        sides = [(off, off_folder, off_meter), (on, on_folder, on_meter)]
        async with lifespan(off), lifespan(on):
            for app, _, _ in sides:
                await Client(exchange, "warm-up").call(app)
            gc.collect()
            gc.freeze()  # as in `scenarios.compare`
            for number in range(scenario.rounds):
                for app, folder, meter in sides if number % 2 else reversed(sides):
                    async with meter.phase() as phase:
                        await load(app, exchange, f"{name}-{number}", phase.latencies)
                    captured_lines(
                        folder, f"{name}-{number}-" if name == "e" else f"{name}-{number}", len(phase.latencies)
                    )
                    await _sent(on)
            gc.unfreeze()
        calls = sum(len(phase.latencies) for phase in on_meter.phases) + 1
        if (sent := mirror_of(on).sent) != calls:
            raise MissingSpansError(f"{calls} calls, {sent} spans")
        await off.aclose()
        await on.aclose()
    return Outcome(
        checks=tuple(_checks(name, off_meter, on_meter)),
        notes=(_note(name, scenario.title, off_meter.side(), on_meter.side()),),
    )


def captured(
    exchange: Exchange, folder: Path, endpoint: str | None, *, queue_bytes: int | None = None
) -> CaptureMiddleware:
    """The toy model with capture, its spans sent to this URL or not at all; what waits is bounded as always, or so."""
    bound = {} if queue_bytes is None else {"mirror_queue_bytes": queue_bytes}
    destinations = None if endpoint is None else [{"endpoint": endpoint}]
    return CaptureMiddleware(
        ToyModel(exchange),
        settings=Settings(
            observability_enabled=True,
            model_call_capture_dir=folder,
            mirror=endpoint is not None,
            mirror_destinations=destinations,
            **bound,
        ),
    )


def mirror_of(app: CaptureMiddleware) -> Mirror:
    """Of an application that has one."""
    mirroring = pipeline_of(app)._mirroring
    assert mirroring is not None
    return mirroring.mirror


def pipeline_of(app: CaptureMiddleware) -> Pipeline:
    """Of an application with capture."""
    assert app._pipeline is not None
    return app._pipeline


async def _sent(app: CaptureMiddleware) -> None:
    """What is left of one turn must not cost the next."""
    await asyncio.get_running_loop().run_in_executor(None, pipeline_of(app).flush, 10.0)


def _checks(name: str, off: Meter, on: Meter) -> Iterator[Check]:
    pairs = zip(off.phases, on.phases, strict=True)
    fewer = 100 * (1 - statistics.median(b.calls_per_s / a.calls_per_s for a, b in pairs))
    yield Check(f"mirror-{name}", "fewer calls/s than without", fewer, FEWER_CALLS_PERCENT, "%")
    lag = on.side().lag_p99_ms - off.side().lag_p99_ms
    yield Check(f"mirror-{name}", "loop lag p99 above that without", lag, LAG_P99_MS, "ms")


def _note(name: str, title: str, off: Side, on: Side) -> str:
    return (
        f"mirror {name}, {title}: p50 off {off.p50_ms:.2f} ms, on {on.p50_ms:.2f} ms; "
        f"calls/s {off.calls_per_s:,.0f} and {on.calls_per_s:,.0f}; "
        f"CPU {off.cpu_ms:.2f} and {on.cpu_ms:.2f} ms a call; "
        f"lag p99 {off.lag_p99_ms:.1f} and {on.lag_p99_ms:.1f} ms, "
        f"worst {off.lag_worst_ms:.1f} and {on.lag_worst_ms:.1f} ms"
    )
