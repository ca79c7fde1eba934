"""The same over uvicorn, to know: a server in a process of its own, and raw keep-alive clients.

python -m benchmarks.served bare|captured a|c DIRECTORY
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import bodies
from benchmarks.bench import Bench, Outcome, capture, captured_lines
from benchmarks.exchange import Exchange, ToyModel, WrongBytesError
from otel_gym.asgi import App

EXCHANGES: dict[str, Callable[[], Exchange]] = {"a": bodies.small, "c": lambda: bodies.chat_stream(500)}
CALLS = {"a": 150, "c": 30}
ROUNDS = 4
CLIENTS = 32


async def run(bench: Bench, name: str) -> Outcome:
    """One of a, c: the median call of one client, then the calls/s of 32."""
    exchange = EXCHANGES[name]()
    calls = bench.times(CALLS[name], least=2)
    added, medians, rates = [], {"bare": 0.0, "captured": 0.0}, {"bare": 0.0, "captured": 0.0}
    with bench.folder() as folder, server("bare", name, folder) as bare, server("captured", name, folder) as captured:
        ports = {"bare": bare, "captured": captured}
        latencies: dict[str, list[float]] = {"bare": [], "captured": []}
        for _ in range(ROUNDS):
            of_round = {side: await keep_alive(port, exchange, "one", calls) for side, port in ports.items()}
            added.append(statistics.median(of_round["captured"]) - statistics.median(of_round["bare"]))
            for side, values in of_round.items():
                latencies[side] += values
        for side, port in ports.items():
            medians[side] = 1e3 * statistics.median(latencies[side])
            began = time.perf_counter()
            await asyncio.gather(*(keep_alive(port, exchange, f"many-{client}", calls) for client in range(CLIENTS)))
            rates[side] = CLIENTS * calls / (time.perf_counter() - began)
        captured_lines(folder, "", (ROUNDS + CLIENTS) * calls)
    note = (
        f"{name} over uvicorn: p50 bare {medians['bare']:.2f} ms, captured {medians['captured']:.2f} ms, "
        f"added {1e3 * statistics.median(added):.2f} ms; {CLIENTS} clients: bare {rates['bare']:,.0f} calls/s, "
        f"captured {rates['captured']:,.0f} calls/s"
    )
    return Outcome(notes=(note,))


@contextlib.contextmanager
def server(side: str, name: str, folder: Path) -> Iterator[int]:
    """A server as a child; its port."""
    command = [sys.executable, "-m", "benchmarks.served", side, name, str(folder)]
    root = Path(__file__).resolve().parent.parent
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=root) as child:
        try:
            assert child.stdout is not None
            yield int(child.stdout.readline())
        finally:
            child.terminate()


async def keep_alive(port: int, exchange: Exchange, rollout_id: str, calls: int) -> list[float]:
    """Make calls one after the other on one connection; seconds of each, to its last byte.

    Raises:
        WrongBytesError: an answer has another length than the application sent.
    """
    head = (
        f"POST /ng-rollout/{rollout_id}{exchange.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(exchange.request)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    latencies = []
    try:
        for _ in range(calls):
            began = time.perf_counter()
            writer.write(head.encode() + exchange.request)
            await reader.readuntil(b"\r\n\r\n")
            received = (
                await _read_chunks(reader) if exchange.stream else len(await reader.readexactly(exchange.response_size))
            )
            latencies.append(time.perf_counter() - began)
            if received != exchange.response_size:
                raise WrongBytesError(f"{received} bytes came of {exchange.response_size}")
    finally:
        writer.close()
        await writer.wait_closed()
    return latencies


async def _read_chunks(reader: asyncio.StreamReader) -> int:
    """Read a chunked body; its length."""
    received = 0
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
        received += size
    await reader.readline()
    return received


def main() -> None:
    """The child: serve on a free port and say which."""
    import uvicorn  # the parent, and a run without `served`, need none

    side, name, folder = sys.argv[1:]
    app: App = ToyModel(EXCHANGES[name]())
    if side == "captured":
        app = capture(app, Path(folder))
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)  # whoever connects before uvicorn is up waits
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(app, log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
