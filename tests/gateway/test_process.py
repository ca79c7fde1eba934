"""`otel-gym gateway` as a process, in front of the example model server and of worse ones, by SDKs and bare sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from otel_gym.testing import answer, stream
from otel_gym_jsonl import CaptureStore
from tests.gateway.gateways import PATHS, until
from tests.gateway.raw_upstream import Connection, answering, http, playing
from tests.servers.processes import ROOT, listening, running, wait_until
from tests.servers.test_sdks import WAYS
from tests.servers.wire import connected, exchange, reset, rest
from tests.servers.wire import until as read_until

pytestmark = pytest.mark.servers

CANARY = "canary-51ab"
CHAT = "/ng-rollout/0-0/v1/chat/completions"


class Served:
    """A gateway process.

    Attributes:
        port: it listens there.
        upstream: the port of the model server behind it, 0 where a test plays it.
        log: its stderr.
        store: what it recorded.
    """

    def __init__(self, port: int, upstream: int, log: Path, captures: Path) -> None:
        self.port = port
        self.upstream = upstream
        self.log = log
        self.store = CaptureStore(captures)

    def url(self, rollout_id: str) -> str:
        return f"http://127.0.0.1:{self.port}/ng-rollout/{rollout_id}"

    def records(self, rollout_id: str = "0-0") -> list[dict[str, Any]]:
        return self.store.read(rollout_id)


@contextlib.contextmanager
def serving(
    folder: Path, url: str, *options: str, upstream: int = 0, variables: dict[str, str] | None = None
) -> Iterator[Served]:
    captures, log = folder / "captures", folder / "gateway.log"
    command = ["otel_gym", "gateway", "--upstream", url, "--port", "{port}", "--capture-dir", str(captures)]
    with listening([*command, *options], log, variables or {}) as port:
        yield Served(port, upstream, log, captures)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway in front of the example model server."""
    folder = tmp_path_factory.mktemp("gateway")
    model = ["uvicorn", "examples.model_server:app", "--port", "{port}", "--log-level", "warning"]
    with (
        listening(model, folder / "model.log", {}) as upstream,
        serving(folder, f"http://127.0.0.1:{upstream}", "--name", "policy", upstream=upstream) as gateway,
    ):
        yield gateway


# ---------------------------------------------------------------- SDKs


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_sdks_get_through_the_gateway_what_they_get_without(served: Served, way: Callable[..., Any]) -> None:
    seen: list[int] = []
    rollout_id = way.__name__

    def end() -> None:
        seen.append(len(served.records(rollout_id)))

    def of(url: str, seen_end: Callable[[], None]) -> Any:
        found = way(url, seen_end)
        return asyncio.run(found) if asyncio.iscoroutine(found) else found

    through = of(served.url(rollout_id), end)
    assert of(f"http://127.0.0.1:{served.upstream}", lambda: None) == through
    (record,) = served.records(rollout_id)
    assert ([1], "policy", None) == (seen, record["model_ref"]["name"], record["error_category"])
    keys = ("upstream_attempted", "response_source", "upstream_status_code", "local_response_reason")
    assert [True, "upstream", 200, None] == [record[key] for key in keys]


async def test_a_hundred_streams_at_once_lose_nothing(served: Served) -> None:
    asked: Any = {"model": "scripted-1", "messages": [{"role": "user", "content": "hi"}], "stream": True}

    async def one(number: int) -> str:
        async with AsyncOpenAI(base_url=f"{served.url(f'many-{number}')}/v1", api_key="none", max_retries=0) as client:
            chunks = [chunk async for chunk in await client.chat.completions.create(**asked)]
        said = [chunk.choices[0].delta.model_extra or {} for chunk in chunks]
        return "".join(delta.get("reasoning_content") or "" for delta in said)

    answers = await asyncio.gather(*(one(number) for number in range(100)))
    assert {"I need both populations. Oslo first."} == set(answers)
    records = [record for number in range(100) for record in served.records(f"many-{number}")]
    assert [None] * 100 == [record["error_category"] for record in records]


# ---------------------------------------------------------------- bare sockets


def request(path: str, body: dict[str, Any], version: str = "1.1", *headers: str) -> bytes:
    data = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/{version}", "Host: model.test", "Content-Type: application/json", *headers]
    lines += [f"Content-Length: {len(data)}", "Connection: close"]
    return "\r\n".join([*lines, "", ""]).encode() + data


def without_chunks(data: bytes) -> bytes:
    """Head and body of an answer, wherever its body was cut on its way."""
    head, _, body = data.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head:
        return data
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return head + b"\r\n\r\n" + whole


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_every_byte_is_the_same_with_and_without_the_gateway(
    served: Served, dialect: str, streams: bool, version: str
) -> None:
    conversation = "input" if dialect == "responses" else "messages"
    body = {"model": "m", "stream": streams, conversation: [{"role": "user", "content": "hé"}]}
    prefix = f"/ng-rollout/bytes-{dialect}-{streams}-{version}"
    direct = exchange(served.upstream, [request(PATHS[dialect], body, version)])
    assert without_chunks(direct) == without_chunks(
        exchange(served.port, [request(prefix + PATHS[dialect], body, version)])
    )
    assert direct.startswith(b"HTTP/1.1 200")
    wrong = [request("/v1/none", body), request(PATHS[dialect], {"model": "m"})]
    for sent in wrong:
        direct = exchange(served.upstream, [sent])
        assert (direct, b"200" in direct.partition(b"\r\n")[0]) == (exchange(served.port, [sent]), False)


@pytest.mark.parametrize("kind", ["stream", "json"])
async def test_an_upstream_that_breaks_off_breaks_the_clients_connection_too(tmp_path: Path, kind: str) -> None:
    piece = stream("chat", "Hel")[1]

    async def play(connection: Connection) -> None:
        await connection.request()
        whole = http(json.dumps(answer("chat", "hi")).encode())
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        await connection.say(head + b"%x\r\n%s\r\n" % (len(piece), piece) if kind == "stream" else whole[:-4])
        await asyncio.sleep(0.1)
        connection.reset()

    async with playing(play) as upstream:
        with serving(tmp_path, upstream.url) as gateway:
            got = await asyncio.to_thread(exchange, gateway.port, [request(CHAT, {"model": "m"})])
            assert (True, False) == (b"200 OK" in got, got.endswith((b"0\r\n\r\n", b"}")))
            assert [(200, "connection")] == [(r["status_code"], r["error_category"]) for r in gateway.records()]
            assert "Traceback" not in gateway.log.read_text()


async def test_a_client_that_hangs_up_ends_the_work_of_the_upstream(tmp_path: Path) -> None:
    gone = asyncio.Event()

    async def play(connection: Connection) -> None:
        await connection.request()
        piece = stream("chat", "Hel")[1]
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        await connection.say(head + b"%x\r\n%s\r\n" % (len(piece), piece))
        await connection.gone()
        gone.set()

    def hang_up(port: int) -> None:
        with connected(port) as connection:
            connection.sendall(request(CHAT, {"model": "m"}))
            read_until(connection, b"Hel")
            reset(connection)

    async with playing(play) as upstream:
        with serving(tmp_path, upstream.url) as gateway:
            await asyncio.to_thread(hang_up, gateway.port)
            await asyncio.wait_for(gone.wait(), 20)
            await until(lambda: bool(gateway.records()))
            (record,) = gateway.records()
            assert (200, "cancelled") == (record["status_code"], record["error_category"])
            assert "" == gateway.log.read_text().partition("\n")[2]


async def test_keys_are_in_no_log_at_any_level(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"{CANARY}-client\n")
    options = ["--key-env", "UPSTREAM_KEY", "--client-keys-file", str(tmp_path / "keys"), "--log-level", "debug"]
    async with playing(answering(http(b"{}"), http(b"{}", "401 x"))) as upstream:
        variables = {"UPSTREAM_KEY": f"{CANARY}-upstream"}
        with serving(tmp_path, upstream.url, *options, variables=variables) as gateway:
            for key in ("client", "client", "stranger"):
                sent = request(CHAT, {}, "1.1", f"Authorization: Bearer {CANARY}-{key}")
                got = await asyncio.to_thread(exchange, gateway.port, [sent])
                assert (b"200" if key == "client" and not upstream.heads[1:] else b"401") == got[9:12]
            assert [True, True] == [f"Bearer {CANARY}-upstream".encode() in head for head in upstream.heads]
        left = gateway.log.read_text() + json.dumps(gateway.records())
    assert (2, False) == (len(gateway.records()), CANARY in left)


def test_http_2_is_spoken_where_the_upstream_offers_it(tmp_path: Path) -> None:
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    certificate = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run(
        [*certificate, "-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "cert")],
        check=True,
        capture_output=True,
    )
    server = ["hypercorn", "tests.gateway.versions:application", "--bind", "127.0.0.1:{port}"]
    with (
        listening(
            [*server, "--certfile", str(tmp_path / "cert"), "--keyfile", str(tmp_path / "key")], tmp_path / "up.log", {}
        ) as up,
        serving(tmp_path, f"https://localhost:{up}/v1", variables={"SSL_CERT_FILE": str(tmp_path / "cert")}) as gateway,
    ):
        got = exchange(gateway.port, [request(CHAT, {"model": "m"}, "1.1", "TE: trailers", "Connection: te")])
    assert {"http_version": "2", "path": "/v1/chat/completions"} == json.loads(got.partition(b"\r\n\r\n")[2])
    assert [{"http_version": "2", "path": "/v1/chat/completions"}] == [
        record["response"] for record in gateway.records()
    ]


# ---------------------------------------------------------------- the process


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_ends_it_once_what_it_serves_is_recorded(tmp_path: Path, sent: signal.Signals, code: int) -> None:
    log = tmp_path / "gateway.log"
    model = ["uvicorn", "examples.model_server:app", "--port", "{port}", "--log-level", "warning"]
    with listening(model, tmp_path / "model.log", {}) as upstream:
        command = ["otel_gym", "gateway", "--upstream", f"http://127.0.0.1:{upstream}", "--port", "0"]
        with running([*command, "--capture-dir", str(tmp_path / "captures")], log, {}) as child:
            wait_until(lambda: "http://" in log.read_text())
            port = int(log.read_text().split("http://127.0.0.1:")[1].split(" ")[0])
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
            with connected(port) as connection:
                connection.sendall(request(CHAT, body))
                read_until(connection, b"data: ")
                os.kill(child.pid, sent)
                assert b"[DONE]" in rest(connection)
            assert code == child.wait(20)
    (record,) = CaptureStore(tmp_path / "captures").read("0-0")
    assert (200, None) == (record["status_code"], record["error_category"])
    assert "Traceback" not in log.read_text()


def test_a_relative_capture_directory_is_counted_from_where_it_was_started(tmp_path: Path) -> None:
    log = tmp_path / "gateway.log"
    relative = os.path.relpath(tmp_path / "captures", ROOT)
    command = ["otel_gym", "gateway", "--upstream", "http://127.0.0.1:9", "--port", "{port}"]
    with listening([*command, "--capture-dir", relative], log, {}) as port:
        assert b" 502 " in exchange(port, [request(CHAT, {"model": "m"})]).partition(b"\r\n")[0]
    line, *_ = lines(log)  # that the upstream cannot be reached is said below
    said = Path(line.partition("; records in ")[2])
    assert (True, tmp_path / "captures") == (said.is_absolute(), said.resolve())
    assert 1 == len(CaptureStore(tmp_path / "captures").read("0-0"))


def lines(log: Path) -> Sequence[str]:
    return log.read_text().splitlines()


def test_one_line_says_where_it_listens_and_what_becomes_of_the_records(tmp_path: Path) -> None:
    with serving(tmp_path, "http://127.0.0.1:9/v1") as gateway:
        (line,) = lines(gateway.log)
    place = f"http://127.0.0.1:{gateway.port}"
    assert f"otel-gym gateway: {place} in front of http://127.0.0.1:9/v1; records in {tmp_path / 'captures'}" == line
