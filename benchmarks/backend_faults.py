"""What a tracing backend at fault costs the calls, beside the mirror off: nothing that shows above the noise.

One client's calls take turns: mirror off, off once more, to a backend that is well, and to each at fault. Then each
backend is well again, at the same port: every span was sent, or is counted as shed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks import bodies
from benchmarks.bench import Bench, Check, Outcome, captured_lines
from benchmarks.exchange import Client, Exchange, lifespan
from benchmarks.meters import Meter, Phase, percentile
from benchmarks.mirrored import captured, mirror_of, pipeline_of
from benchmarks.receiver import FAULTS, receiver
from benchmarks.scenarios import one_client
from otel_gym import CaptureMiddleware

ROUNDS = 6
OFF = ("off", "off once more")
QUEUE_BYTES = 500_000  # small, so that something is shed
NOISE_PERCENT = {50: 10.0, 99: 25.0}  # at least; else how far the upper quarter of rounds without is above their middle
CALLS_WHEN_WELL = 20
SECONDS_TO_RECOVER = 30.0


@dataclass
class _Turn:
    """One application of those that take turns; `backend` ends its receiver."""

    name: str
    app: CaptureMiddleware
    folder: Path
    endpoint: str | None
    backend: contextlib.ExitStack
    meter: Meter = field(default_factory=Meter)
    most_queued: int = 0

    @property
    def calls(self) -> int:
        return sum(len(phase.latencies) for phase in self.meter.phases)

    def look_at_the_queue(self) -> None:
        if self.endpoint is not None:
            self.most_queued = max(self.most_queued, mirror_of(self.app).queued_bytes)


async def run(bench: Bench) -> Outcome:
    """All turns, then the recovery of each backend."""
    exchange = bodies.small()
    load = one_client(100, seconds=0.6)(bench)
    async with contextlib.AsyncExitStack() as stack:
        turns = []
        for name in (*OFF, "well", *FAULTS):
            backend = stack.enter_context(contextlib.ExitStack())
            endpoint = None if name in OFF else backend.enter_context(receiver(name))
            folder = stack.enter_context(bench.folder())
            app = captured(exchange, folder, endpoint, queue_bytes=QUEUE_BYTES)
            stack.push_async_callback(app.aclose)
            await stack.enter_async_context(lifespan(app))
            await Client(exchange, "warm-up").call(app)
            turns.append(_Turn(name, app, folder, endpoint, backend))
        gc.collect()
        gc.freeze()  # as in `scenarios.compare`
        for number in range(ROUNDS):
            for turn in turns if number % 2 else reversed(turns):
                async with turn.meter.phase() as phase:
                    await load(turn.app, exchange, f"faults-{number}", phase.latencies)
                turn.look_at_the_queue()
                captured_lines(turn.folder, f"faults-{number}", len(phase.latencies))
        gc.unfreeze()
        off = [phase for turn in turns if turn.name in OFF for phase in turn.meter.phases]
        recovered = [turn for turn in turns if turn.name in FAULTS]
        sent = [mirror_of(turn.app).sent for turn in recovered]
        await asyncio.gather(*(_recover(turn, exchange) for turn in recovered))
        checks = [check for turn in turns if turn.name not in OFF for check in _latency_checks(turn, off)]
        checks += [check for turn, before in zip(recovered, sent, strict=True) for check in _span_checks(turn, before)]
        return Outcome(checks=tuple(checks), notes=tuple(_note(turn) for turn in turns))


async def _recover(turn: _Turn, exchange: Exchange) -> None:
    """The backend is well from now on, and some calls later it has all that was not shed."""
    turn.backend.close()
    turn.backend.enter_context(receiver(port=urlsplit(turn.endpoint or "").port or 0))
    for _ in range(CALLS_WHEN_WELL):
        await Client(exchange, "when-well").call(turn.app)
        turn.look_at_the_queue()
    captured_lines(turn.folder, "when-well", CALLS_WHEN_WELL)
    await asyncio.get_running_loop().run_in_executor(None, pipeline_of(turn.app).flush, SECONDS_TO_RECOVER)


def _latency_checks(turn: _Turn, off: Sequence[Phase]) -> Iterator[Check]:
    for percent, least in NOISE_PERCENT.items():
        without = [percentile(phase.latencies, percent) for phase in off]
        middle = statistics.median(without)
        more = statistics.median(percentile(phase.latencies, percent) for phase in turn.meter.phases) / middle - 1
        noise = max(least, 100 * (percentile(without, 75) / middle - 1))
        yield Check("mirror-faults", f"{turn.name}: p{percent} above that without a mirror", 100 * more, noise, "%")


def _span_checks(turn: _Turn, sent_before: int) -> Iterator[Check]:
    mirror = mirror_of(turn.app)
    calls = turn.calls + 1 + CALLS_WHEN_WELL
    unaccounted = abs(calls - mirror.sent - mirror.shed["spans"])
    yield Check("mirror-faults", f"{turn.name}: spans neither sent nor counted as shed", unaccounted, 0, "")
    queued = turn.most_queued / 1000
    yield Check("mirror-faults", f"{turn.name}: most that waited", queued, QUEUE_BYTES / 1000, "KB")
    after = mirror.sent - sent_before
    yield Check("mirror-faults", f"{turn.name}: sent once it was well", after, CALLS_WHEN_WELL, "spans", True)


def _note(turn: _Turn) -> str:
    side = turn.meter.side()
    spans = ""
    if turn.endpoint is not None:
        mirror = mirror_of(turn.app)
        spans = f"; {mirror.sent:,} spans sent in the end, {mirror.shed['spans']:,} shed"
    return f"mirror {turn.name}: p50 {side.p50_ms:.2f} ms, p99 {side.p99_ms:.2f} ms of {side.calls:,} calls{spans}"
