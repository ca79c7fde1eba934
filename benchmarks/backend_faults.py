"""What a tracing backend at fault costs the calls: refused, hanging, 503 with Retry-After, beside the mirror off."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks import bodies
from benchmarks.bench import Bench, Check, Outcome, captured_lines
from benchmarks.exchange import Client, lifespan
from benchmarks.meters import Meter
from benchmarks.mirrored import captured
from benchmarks.scenarios import one_client

MORE_PERCENT = 10.0
ROUNDS = 4


class _Unavailable(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Read, and have no time."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(503)
        self.send_header("retry-after", "1")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def _refused() -> Iterator[str]:
    with socket.socket() as unheard:  # bound and not listening: nobody else gets the port, every connection is refused
        unheard.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{unheard.getsockname()[1]}"


@contextlib.contextmanager
def _hanging() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections wait in its backlog for ever
        yield f"http://127.0.0.1:{silent.getsockname()[1]}"


@contextlib.contextmanager
def _unavailable() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Unavailable) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


BACKENDS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "refused": _refused,
    "hanging": _hanging,
    "503": _unavailable,
}


async def run(bench: Bench) -> Outcome:
    """One client's calls with the mirror off and with each faulty backend, in turns."""
    exchange = bodies.small()
    load = one_client(100, seconds=0.8)(bench)
    meters = {name: Meter() for name in ("off", *BACKENDS)}
    async with contextlib.AsyncExitStack() as stack:
        sides = []
        for name, meter in meters.items():
            endpoint = stack.enter_context(BACKENDS[name]()) if name in BACKENDS else None
            folder = stack.enter_context(bench.folder())
            app = captured(exchange, folder, endpoint)
            stack.push_async_callback(app.aclose)
            await stack.enter_async_context(lifespan(app))
            await Client(exchange, "warm-up").call(app)
            sides.append((app, folder, meter))
        gc.collect()
        gc.freeze()  # as in `scenarios.compare`
        for number in range(ROUNDS):
            for app, folder, meter in sides if number % 2 else reversed(sides):
                async with meter.phase() as phase:
                    await load(app, exchange, f"faults-{number}", phase.latencies)
                captured_lines(folder, f"faults-{number}", len(phase.latencies))
        gc.unfreeze()
    off = meters["off"].side()
    checks, notes = [], [f"mirror off: p50 {off.p50_ms:.2f} ms, p99 {off.p99_ms:.2f} ms"]
    for name in BACKENDS:
        side = meters[name].side()
        more = 100 * (side.p50_ms / off.p50_ms - 1)
        checks.append(Check("mirror-faults", f"p50 above that without, {name}", more, MORE_PERCENT, "%"))
        notes.append(f"backend {name}: p50 {side.p50_ms:.2f} ms, p99 {side.p99_ms:.2f} ms")
    return Outcome(checks=tuple(checks), notes=tuple(notes))
