"""The gateway on loopback, beside a bare pass-through of the same shape: httpx, one application, nothing else.

python -m benchmarks.gateway upstream|bare|captured a|c|paced|paced-short PORT DIRECTORY

Upstream and both gateways are processes of their own; the clients are raw sockets in this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import bodies
from benchmarks.bench import Bench, Check, Outcome, captured_lines
from benchmarks.exchange import Exchange, ToyModel, read_body
from benchmarks.meters import TICK_S, percentile
from benchmarks.served import keep_alive
from otel_gym.asgi import App, Receive, Scope, Send

CALLS = 60
CLIENTS = 32
FIRST_CHUNKS = 40
ROUNDS = 5
STREAMS = 500
RAMP_S = 5.0
HELD_S = 5.0
CHUNK_EVERY_S = 0.25
CALLS_SHARE = 0.80
FIRST_CHUNK_MS = 1.0
LAG_MS = 20.0
SHORT = 0.1  # of the times of the held streams, where the bench only shows that it works

EXCHANGES: dict[str, Callable[[], Exchange]] = {
    "a": bodies.small,
    "c": lambda: bodies.chat_stream(500),
    "paced": lambda: _paced(1.0),
    "paced-short": lambda: _paced(SHORT),
}


def run(bench: Bench) -> Outcome:
    """Calls/s of 32 clients, time to the first chunk of one, and 500 streams at once."""
    return asyncio.run(_run(bench))


async def _run(bench: Bench) -> Outcome:
    with bench.folder() as folder:
        shares, rates = await _calls(bench, folder / "calls")
        added, medians = await _first_chunks(bench, folder / "chunks")
        streams = bench.times(STREAMS, least=2)
        lag = await _held(bench, folder / "held", "captured", streams)
        bare_lag = await _held(bench, folder / "bare", "bare", streams)
    rate_note = (
        f"gateway: {CLIENTS} clients: bare pass-through {rates['bare']:,.0f} calls/s, captured "
        f"{rates['captured']:,.0f} calls/s; first chunk p50 bare {1e3 * medians['bare']:.2f} ms, captured "
        f"{1e3 * medians['captured']:.2f} ms"
    )
    lag_note = (
        f"gateway: {streams} streams held: loop lag p50 {1e3 * percentile(lag, 50):.1f} ms, p99 "
        f"{1e3 * percentile(lag, 99):.1f} ms, worst {1e3 * max(lag):.1f} ms; bare p99 "
        f"{1e3 * percentile(bare_lag, 99):.1f} ms, worst {1e3 * max(bare_lag):.1f} ms"
    )
    return Outcome(
        checks=(
            Check("gateway", "calls/s ÷ bare pass-through", statistics.median(shares), CALLS_SHARE, "", at_least=True),
            Check("gateway", "added to first chunk p50", 1e3 * statistics.median(added), FIRST_CHUNK_MS, "ms"),
            Check("gateway", f"loop lag p99, {streams} streams", 1e3 * percentile(lag, 99), LAG_MS, "ms"),
        ),
        notes=(rate_note, lag_note),
    )


async def _calls(bench: Bench, folder: Path) -> tuple[list[float], dict[str, float]]:
    """Of each round, captured over bare calls/s; and the best rate of each."""
    exchange, calls = EXCHANGES["a"](), bench.times(CALLS, least=2)
    shares = []
    best = {"bare": 0.0, "captured": 0.0}
    with _pair("a", folder) as ports:
        for port in ports.values():
            await keep_alive(port, exchange, "warm", 2)
        for number in range(ROUNDS):
            rates = {}
            for side in sorted(ports, reverse=bool(number % 2)):
                began = time.perf_counter()
                clients = (keep_alive(ports[side], exchange, f"{number}-{client}", calls) for client in range(CLIENTS))
                await asyncio.gather(*clients)
                rates[side] = CLIENTS * calls / (time.perf_counter() - began)
                best[side] = max(best[side], rates[side])
            shares.append(rates["captured"] / rates["bare"])
        captured_lines(folder, "", ROUNDS * CLIENTS * calls + 2)
    return shares, best


async def _first_chunks(bench: Bench, folder: Path) -> tuple[list[float], dict[str, float]]:
    """What the captured gateway adds to the median time to the first chunk in each round; and both medians."""
    exchange, calls = EXCHANGES["c"](), bench.times(FIRST_CHUNKS, least=2)
    added, seconds = [], {"bare": list[float](), "captured": list[float]()}
    with _pair("c", folder) as ports:
        for _ in range(ROUNDS):
            of_round: dict[str, list[float]] = {}
            for side, port in ports.items():
                of_round[side] = [await _first_chunk(port, exchange) for _ in range(calls)]
            added.append(statistics.median(of_round["captured"]) - statistics.median(of_round["bare"]))
            for side, values in of_round.items():
                seconds[side] += values
    return added, {side: statistics.median(values) for side, values in seconds.items()}


async def _held(bench: Bench, folder: Path, side: str, streams: int) -> list[float]:
    """How late the event loop was while so many streams ran."""
    part, name = (1.0, "paced") if bench.scale >= SHORT else (SHORT, "paced-short")
    exchange = EXCHANGES[name]()
    with server("upstream", name, 0, folder) as upstream, server(side, name, upstream, folder) as port:

        async def one(number: int) -> None:
            await asyncio.sleep(RAMP_S * part * number / streams)
            await keep_alive(port, exchange, f"held-{number}", 1)

        running = asyncio.gather(*(one(number) for number in range(streams)))
        await asyncio.sleep(RAMP_S * part + 0.5)
        await _lag(port)
        await asyncio.sleep(HELD_S * part)
        lag = await _lag(port)
        await running
        if side == "captured":
            captured_lines(folder, "held-", streams)
    return lag


def _paced(part: float) -> Exchange:
    """A stream that lasts as long as all of them begin and are held."""
    return bodies.chat_stream(round(((RAMP_S + HELD_S) * part + 1) / CHUNK_EVERY_S))


@contextlib.contextmanager
def _pair(name: str, folder: Path) -> Iterator[dict[str, int]]:
    with (
        server("upstream", name, 0, folder) as upstream,
        server("bare", name, upstream, folder) as bare,
        server("captured", name, upstream, folder) as captured,
    ):
        yield {"bare": bare, "captured": captured}


@contextlib.contextmanager
def server(role: str, name: str, upstream: int, folder: Path) -> Iterator[int]:
    """A server as a child; its port."""
    command = [sys.executable, "-m", "benchmarks.gateway", role, name, str(upstream), str(folder)]
    root = Path(__file__).resolve().parent.parent
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=root) as child:
        try:
            assert child.stdout is not None
            yield int(child.stdout.readline())
        finally:
            child.terminate()


async def _first_chunk(port: int, exchange: Exchange) -> float:
    """Seconds from a request to the first byte of its answer's body; the rest is read afterwards."""
    head = (
        f"POST /ng-rollout/first{exchange.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(exchange.request)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    try:
        began = time.perf_counter()
        writer.write(head.encode() + exchange.request)
        await reader.readuntil(b"data: ")
        seconds = time.perf_counter() - began
        await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
    return seconds


async def _lag(port: int) -> list[float]:
    """How late the sleeper in a server woke since the last time that this was asked, seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /lag HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
    body = (await reader.read()).partition(b"\r\n\r\n")[2]
    writer.close()
    await writer.wait_closed()
    found: list[float] = json.loads(body)
    return found


# ---------------------------------------------------------------- the children


class WithLag:
    """An application that says at `/lag` how late its event loop is, from the first question on."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._sleeper: asyncio.Task[None] | None = None
        self._lateness = [0.0]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http" or scope["path"] != "/lag":
            await self.app(scope, receive, send)
            return
        if self._sleeper is None:
            self._sleeper = asyncio.ensure_future(self._sleep())
        said, self._lateness = self._lateness, [0.0]
        body = json.dumps(said).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _sleep(self) -> None:
        while True:
            due = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            self._lateness.append(max(0.0, time.perf_counter() - due))


class PacedModel(ToyModel):
    """A model that takes its time between chunks."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        if scope["type"] == "lifespan":
            await super().__call__(scope, receive, send)
            return
        await read_body(receive)
        await send({"type": "http.response.start", "status": 200, "headers": list(self.headers)})
        for piece in self.exchange.pieces:
            await asyncio.sleep(CHUNK_EVERY_S)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class BarePassThrough:
    """What one writes in an hour: httpx in front of the upstream, requests and answers in pieces, raw."""

    def __init__(self, upstream: str) -> None:
        import httpx

        self._upstream = upstream
        limits = httpx.Limits(max_connections=1000, max_keepalive_connections=1000)
        self._client = httpx.AsyncClient(limits=limits, timeout=60.0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        path = scope["path"].split("/", 3)[3] if scope["path"].startswith("/ng-rollout/") else scope["path"][1:]
        headers = [pair for pair in scope["headers"] if pair[0] not in (b"host", b"connection")]
        url = f"{self._upstream}/{path}"
        request = self._client.build_request(scope["method"], url, headers=headers, content=_pieces(receive))
        response = await self._client.send(request, stream=True)
        try:
            raw: list[tuple[bytes, bytes]] = response.headers.raw
            kept = [(name.lower(), value) for name, value in raw if name.lower() != b"transfer-encoding"]
            await send({"type": "http.response.start", "status": response.status_code, "headers": kept})
            async for piece in response.aiter_raw():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await response.aclose()


async def _pieces(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        more = message.get("more_body", False)
        yield message.get("body", b"")


def application(role: str, name: str, upstream: str, folder: Path) -> App:
    """What a child serves."""
    if role == "upstream":
        exchange = EXCHANGES[name]()
        return PacedModel(exchange) if name.startswith("paced") else ToyModel(exchange)
    if role == "bare":
        return WithLag(BarePassThrough(upstream))
    from otel_gym import Settings
    from otel_gym.gateway import Gateway, Upstream, Upstreams, make_client

    settings = Settings(observability_enabled=True, model_call_capture_dir=folder)
    return WithLag(Gateway(make_client(), Upstreams([Upstream(upstream)], "upstream"), settings))


def main() -> None:
    """The child: serve on a free port and say which."""
    import uvicorn

    role, name, upstream, folder = sys.argv[1:]
    app = application(role, name, f"http://127.0.0.1:{upstream}", Path(folder))
    options: dict[str, Any] = {"server_header": False, "date_header": False} if role != "upstream" else {}
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(app, log_level="warning", access_log=False, **options)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
