"""One request through the gateway, in front of upstreams whose every byte is in plain sight."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from otel_gym.gateway import Limits, Upstream
from otel_gym.testing import Exchange, answer, stream
from tests.gateway.gateways import PATHS, gateway, until
from tests.gateway.raw_upstream import Connection, Play, answering, http, playing

CHAT = "/ng-rollout/0-0/v1/chat/completions"
BODY = json.dumps(answer("chat", "hi")).encode()
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def parts(messages: list[Any]) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers and body of an answer."""
    start = messages[0]
    return start["status"], start["headers"], b"".join(message.get("body", b"") for message in messages[1:])


async def call(app: Any, path: str = CHAT, body: Any = b"{}", **more: Any) -> tuple[int, Any, bytes]:
    async with Exchange(app, path, body, **more) as exchange:
        return parts(await exchange.rest())


# ---------------------------------------------------------------- as it came


async def test_method_path_query_headers_and_body_reach_the_upstream_as_they_came(tmp_path: Path) -> None:
    headers = [
        (b"host", b"gateway.test"),
        (b"x-many", b"1"),
        (b"authorization", b"Bearer sk-client"),
        (b"x-many", b"2"),
        (b"connection", b"keep-alive, x-hop"),
        (b"x-hop", b"gone"),
        (b"te", b"trailers"),
        (b"content-length", b"5"),
        (b"x-latin", "é".encode("latin-1")),
    ]
    async with playing(answering(http(b"{}"))) as upstream, gateway(tmp_path, Upstream(upstream.url)) as running:
        path = "/ng-rollout/0-0/v1/odd%2Fpath/..%2e/%7Ex;a=|?q=%20a&q=b+c&empty=&%zz"
        await call(running.app, path, b"\xff{}\x00 ", method="PATCH", headers=headers)
    assert [
        b"PATCH /v1/odd%2Fpath/..%2e/%7Ex;a=|?q=%20a&q=b+c&empty=&%zz HTTP/1.1\r\n"
        b"Host: " + upstream.url.removeprefix("http://").encode() + b"\r\n"
        b"x-many: 1\r\nauthorization: Bearer sk-client\r\nx-many: 2\r\ncontent-length: 5\r\nx-latin: \xe9\r\n\r\n"
    ] == upstream.heads
    assert [b"\xff{}\x00 "] == upstream.bodies


@pytest.mark.parametrize(
    ("base", "path", "target"),
    [
        ("", "/v1/models", "/v1/models"),
        ("/v1", "/v1/models", "/v1/models"),
        ("/v1/", "/v1/models?a=1", "/v1/models?a=1"),
        ("/api/v1", "/v1/models", "/api/v1/models"),
        ("/api", "/v1/models", "/api/v1/models"),
        ("/api/v1", "/v1", "/api/v1"),
        ("/v1", "/v10/models", "/v1/v10/models"),
        ("/v1", "/health", "/v1/health"),
        ("/a b", "/v1/models", "/a%20b/v1/models"),
    ],
)
async def test_the_base_url_may_end_with_the_version_or_not(tmp_path: Path, base: str, path: str, target: str) -> None:
    async with playing(answering(http(b"{}"))) as upstream, gateway(tmp_path, Upstream(upstream.url + base)) as running:
        await call(running.app, path, b"", method="GET")
    assert [target] == [head.split(b" ")[1].decode() for head in upstream.heads]


async def test_status_repeated_headers_and_the_compressed_body_reach_the_client_as_they_came(tmp_path: Path) -> None:
    body = gzip.compress(BODY)
    said = http(body, "203 Odd", "Set-Cookie: a=1", "Set-Cookie: b=2", "Content-Encoding: gzip", "Keep-Alive: 3")
    async with playing(answering(said)) as upstream, gateway(tmp_path, Upstream(upstream.url)) as running:
        status, headers, got = await call(running.app)
        await call(running.app)
    assert (203, body) == (status, got)
    assert [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"content-encoding", b"gzip"),
    ] == headers
    assert [json.loads(BODY)] * 2 == [record["response"] for record in running.records()]
    assert [] == [head for head in upstream.heads if b"cookie" in head.lower()]


async def test_a_redirect_is_passed_on_and_not_followed(tmp_path: Path) -> None:
    said = http(b"", "307 Temporary Redirect", "Location: http://[not a url/")
    async with playing(answering(said)) as upstream, gateway(tmp_path, Upstream(upstream.url)) as running:
        status, headers, _ = await call(running.app)
    assert (307, b"http://[not a url/") == (status, dict(headers)[b"location"])


@pytest.mark.parametrize("method", ["HEAD", "GET", "OPTIONS"])
async def test_a_request_without_a_body_gets_none(tmp_path: Path, method: str) -> None:
    said = http(b"{}", "200 OK") if method != "HEAD" else http(b"", "200 OK").replace(b": 0", b": 999")
    async with playing(answering(said)) as upstream, gateway(tmp_path, Upstream(upstream.url)) as running:
        status, headers, body = await call(running.app, "/ng-rollout/0-0/", b"", method=method, headers=[])
    (head,) = upstream.heads
    assert (200, b"999" if method == "HEAD" else b"2") == (status, dict(headers)[b"content-length"])
    assert (b"" if method == "HEAD" else b"{}") == body
    assert b"content-length" not in head.lower()
    assert b"transfer-encoding" not in head.lower()


async def test_pieces_of_a_request_go_on_before_the_rest_has_come(tmp_path: Path) -> None:
    seen = asyncio.Event()

    async def play(connection: Connection) -> None:
        assert b"chunked" in await connection._reader.readuntil(b"\r\n\r\n")
        assert b"3\r\none\r\n" == await connection._reader.readexactly(8)
        seen.set()
        assert b"3\r\ntwo\r\n0\r\n\r\n" == await connection._reader.readexactly(13)
        await connection.say(http(BODY))

    async def receive() -> Any:
        if not sent:
            sent.append(1)
            return {"type": "http.request", "body": b"one", "more_body": True}
        await seen.wait()
        if len(sent) == 1:
            sent.append(2)
            return {"type": "http.request", "body": b"two", "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError

    sent: list[int] = []
    got: list[Any] = []

    async def send(message: Any) -> None:
        got.append(message)

    async with playing(play) as upstream, gateway(tmp_path, Upstream(upstream.url)) as running:
        scope = Exchange(running.app, CHAT).scope
        await running.app(scope, receive, send)
    assert BODY == parts(got)[2]
    assert ["onetwo"] == [record["request_raw"] for record in running.records()]


async def test_each_piece_of_a_stream_comes_at_once_and_the_end_once_it_is_recorded(tmp_path: Path) -> None:
    pieces = stream("chat", "Hel", "lo")
    released = [asyncio.Event() for _ in pieces]

    async def play(connection: Connection) -> None:
        await connection.request()
        await connection.say(STREAM_HEAD)
        for piece, event in zip(pieces, released, strict=True):
            await event.wait()
            await connection.say(chunk(piece))
        await connection.say(b"0\r\n\r\n")

    async with (
        playing(play) as upstream,
        gateway(tmp_path, Upstream(upstream.url)) as running,
        Exchange(running.app, CHAT) as exchange,
    ):
        start = await exchange.message()
        assert start is not None
        assert [(b"content-type", b"text/event-stream")] == start["headers"]
        for piece, event in zip(pieces[:-1], released[:-1], strict=True):
            event.set()
            message = await exchange.message()
            assert message is not None
            assert (piece, True) == (message["body"], message["more_body"])
        released[-1].set()
        last = await exchange.message()
        assert last is not None
        assert pieces[-1] == last["body"]
        assert [None] == [record["error_category"] for record in running.records()]
        await exchange.rest()


async def test_the_piece_that_completes_the_announced_length_is_the_last_message(tmp_path: Path) -> None:
    """Behind it a client of HTTP/1.1 reads no more: its record must be there."""
    said = http(BODY)

    async def play(connection: Connection) -> None:
        while True:
            await connection.request()
            for part in (said[:-9], said[-9:-1], said[-1:]):
                await connection.say(part)
                await asyncio.sleep(0.01)

    async with playing(play) as upstream, gateway(tmp_path, Upstream(upstream.url)) as running:
        for _ in range(2):
            async with Exchange(running.app, CHAT) as exchange:
                messages = (await exchange.rest())[1:]
            assert BODY == b"".join(message["body"] for message in messages)
            assert messages[-1]["body"]
            assert [False] == [message["more_body"] for message in messages if not message["more_body"]]
    assert 1 == len(upstream.connections), "the connection is used again"


async def test_the_outcome_is_the_upstreams_status(tmp_path: Path) -> None:
    said = http(b'{"error":{"message":"slow down"}}', "429 Too Many Requests", "Retry-After: 7")
    async with playing(answering(said)) as upstream, gateway(tmp_path, Upstream(upstream.url)) as running:
        status, headers, body = await call(running.app)
    assert (429, b"7", b'{"error":{"message":"slow down"}}') == (status, dict(headers)[b"retry-after"], body)
    assert [("rate_limit", True, "upstream", 429, None)] == outcomes(running.records())


async def test_an_upstream_that_answers_by_itself_has_the_last_word_on_the_outcome(tmp_path: Path) -> None:
    header = "X-Otel-Gym-Upstream: attempted=false, source=local, reason=context_length_exceeded"
    said = http(b'{"error":{}}', "400 Bad Request", header)
    async with playing(answering(said)) as upstream, gateway(tmp_path, Upstream(upstream.url)) as running:
        await call(running.app)
    assert [("context_length_exceeded", False, "local", None, "context_length_exceeded")] == outcomes(running.records())


def outcomes(records: list[dict[str, Any]]) -> list[Any]:
    keys = ("error_category", "upstream_attempted", "response_source", "upstream_status_code", "local_response_reason")
    return [tuple(record[key] for key in keys) for record in records]


# ---------------------------------------------------------------- failures


def openai_error(message: str, code: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "server_error", "param": None, "code": code}}


def anthropic_error(message: str, kind: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


@pytest.mark.parametrize("dialect", PATHS)
async def test_a_refused_connection_is_502_in_the_words_of_the_api(tmp_path: Path, dialect: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        async with gateway(tmp_path, Upstream(url)) as running:
            status, headers, body = await call(running.app, f"/ng-rollout/0-0{PATHS[dialect]}")
    message = "The gateway got no answer from its upstream 'upstream' (ConnectError)."
    wanted = (
        anthropic_error(message, "api_error")
        if dialect == "messages"
        else openai_error(message, "upstream_unreachable")
    )
    assert (502, wanted) == (status, json.loads(body))
    assert b"attempted=true, source=local, reason=upstream_unreachable" == dict(headers)[b"x-otel-gym-upstream"]
    assert [("upstream_error", True, "local", None, "upstream_unreachable")] == outcomes(running.records())
    assert [wanted] == [record["response"] for record in running.records()]


async def silent(connection: Connection) -> None:
    await connection.request()
    await connection.gone()


async def resetting(connection: Connection) -> None:
    await connection.request()
    connection.reset()


async def closing(connection: Connection) -> None:
    await connection.request()


async def babbling(connection: Connection) -> None:
    await connection.request()
    await connection.say(b"no HTTP at all\r\n\r\n")


@pytest.mark.parametrize(
    ("play", "status", "code"),
    [
        (silent, 504, "upstream_timeout"),
        (resetting, 502, "upstream_unreachable"),
        (closing, 502, "upstream_unreachable"),
        (babbling, 502, "upstream_unreachable"),
    ],
)
async def test_an_upstream_that_fails_before_its_answer_is_502_or_504(
    tmp_path: Path, play: Play, status: int, code: str
) -> None:
    limits = Limits(read_timeout_s=0.2)
    async with playing(play) as upstream, gateway(tmp_path, Upstream(upstream.url), limits=limits) as running:
        got, _, body = await call(running.app)
    assert (status, code) == (got, json.loads(body)["error"]["code"])
    assert [code] == [record["local_response_reason"] for record in running.records()]


@pytest.mark.parametrize(
    ("end", "category"),
    [("reset", "connection"), ("close", "connection"), ("silence", "timeout")],
)
@pytest.mark.parametrize("kind", ["stream", "json"])
async def test_an_upstream_that_fails_in_the_middle_leaves_what_had_come_and_no_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, end: str, category: str
) -> None:
    begun = stream("chat", "Hel")[1]

    async def play(connection: Connection) -> None:
        await connection.request()
        await connection.say(STREAM_HEAD + chunk(begun) if kind == "stream" else http(BODY)[:-5])
        if end == "silence":
            await connection.gone()
        elif end == "reset":
            await asyncio.sleep(0.05)
            connection.reset()

    limits = Limits(read_timeout_s=0.3)
    with caplog.at_level(logging.WARNING):
        async with (
            playing(play) as upstream,
            gateway(tmp_path, Upstream(upstream.url), limits=limits) as running,
            Exchange(running.app, CHAT) as exchange,
        ):
            messages = await exchange.rest()
    assert [] == [message for message in messages[1:] if not message["more_body"]], "the server closes the connection"
    (record,) = running.records()
    assert (200, category) == (record["status_code"], record["error_category"])
    assert (begun if kind == "stream" else BODY[:-5]) == record["response_raw"].encode()
    assert "in the middle of its answer" in caplog.text


async def test_all_connections_busy_is_504_and_no_attempt(tmp_path: Path) -> None:
    limits = Limits(max_connections=1, pool_timeout_s=0.1)
    async with (
        playing(silent) as upstream,
        gateway(tmp_path, Upstream(upstream.url), limits=limits) as running,
        Exchange(running.app, CHAT),
    ):
        await until(lambda: bool(upstream.heads))
        status, _, body = await call(running.app, CHAT.replace("0-0", "0-1"))
    assert (504, "gateway_overloaded") == (status, json.loads(body)["error"]["code"])
    assert [("timeout", False, "local", None, "gateway_overloaded")] == outcomes(running.records("0-1"))


async def test_huge_bodies_pass_both_ways(tmp_path: Path) -> None:
    body = json.dumps({"model": "m", "x": "y" * 20_000_000}).encode()
    pieces = [body[start : start + 65_536] for start in range(0, len(body), 65_536)]

    async def play(connection: Connection) -> None:
        await connection.request()
        await connection.say(http(connection.bodies[0]))

    async with playing(play) as upstream, gateway(tmp_path, Upstream(upstream.url)) as running:
        _, _, got = await call(running.app, CHAT, pieces)
    assert (True, True) == (body == got, [body] == upstream.bodies)
    (record,) = running.records()
    assert (20_000_000, 20_000_000) == (len(record["request"]["x"]), len(record["response"]["x"]))


# ---------------------------------------------------------------- clients that leave


@pytest.mark.parametrize("when", ["before the answer", "in the middle of the stream", "in the middle of the request"])
async def test_a_client_that_leaves_cancels_the_upstream(tmp_path: Path, when: str) -> None:
    gone = asyncio.Event()

    async def play(connection: Connection) -> None:
        try:
            if when == "in the middle of the request":
                await connection._reader.readuntil(b"part")
            else:
                await connection.request()
            if when == "in the middle of the stream":
                await connection.say(STREAM_HEAD + chunk(stream("chat", "Hel")[1]))
            asked.set()
            await connection.gone()
        finally:
            gone.set()

    asked = asyncio.Event()
    leaving = asyncio.Event()
    sent: list[Any] = []

    async def receive() -> Any:
        if not sent:
            sent.append(0)
            return {"type": "http.request", "body": b"part", "more_body": when == "in the middle of the request"}
        await leaving.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async with playing(play) as upstream, gateway(tmp_path, Upstream(upstream.url)) as running:
        task = asyncio.ensure_future(running.app(Exchange(running.app, CHAT).scope, receive, send))
        await asyncio.wait_for(asked.wait(), 20)
        await until(lambda: when != "in the middle of the stream" or len(sent) >= 3)
        leaving.set()
        await asyncio.wait_for(gone.wait(), 20)
        await task
    (record,) = running.records()
    status = 200 if when == "in the middle of the stream" else None
    assert (status, "cancelled") == (record["status_code"], record["error_category"])


async def test_a_client_that_leaves_behind_the_terminal_event_has_a_complete_call(tmp_path: Path) -> None:
    """As Codex and the openai SDK do: they do not wait for the end of the body."""

    async def play(connection: Connection) -> None:
        await connection.request()
        await connection.say(STREAM_HEAD + b"".join(map(chunk, stream("chat", "Hel"))))
        await connection.gone()

    async with (
        playing(play) as upstream,
        gateway(tmp_path, Upstream(upstream.url)) as running,
        Exchange(running.app, CHAT) as exchange,
    ):
        while b"[DONE]" not in exchange.body:
            await exchange.message()
        exchange.disconnect()
        await exchange.task
    assert [(200, None)] == [(record["status_code"], record["error_category"]) for record in running.records()]


async def test_a_server_that_cancels_a_request_sees_its_cancellation(tmp_path: Path) -> None:
    async with (
        playing(silent) as upstream,
        gateway(tmp_path, Upstream(upstream.url)) as running,
        Exchange(running.app, CHAT) as exchange,
    ):
        await until(lambda: bool(upstream.heads))
        exchange.task.cancel()
        await asyncio.wait({exchange.task})
        assert exchange.task.cancelled()
    assert ["cancelled"] == [record["error_category"] for record in running.records()]


# ---------------------------------------------------------------- the seam


async def test_a_transport_of_the_tests_stands_for_the_upstream(tmp_path: Path) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in stream("messages", "Hel", "lo"):
            yield piece

    def serve(request: httpx.Request) -> httpx.Response:
        assert (b"/v1/messages?beta=true", "up.test") == (request.extensions["target"], request.headers["host"])
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=pieces())

    client = httpx.AsyncClient(transport=httpx.MockTransport(serve))
    async with gateway(tmp_path, Upstream("https://up.test"), client=client) as running:
        _, _, body = await call(running.app, "/ng-rollout/0-0/v1/messages?beta=true")
    assert b"".join(stream("messages", "Hel", "lo")) == body
    assert ["Hello"] == [record["response"]["content"][0]["text"] for record in running.records()]


async def test_websockets_are_refused_and_lifespan_is_answered(tmp_path: Path) -> None:
    async with gateway(tmp_path, Upstream("http://up.test")) as running:
        sent: list[Any] = []
        inbox: list[Any] = [{"type": "websocket.connect"}]

        async def receive() -> Any:
            return inbox.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        scope: dict[str, Any] = {"type": "websocket", "path": "/v1/other", "headers": [], "extensions": {}}
        await running.app(scope, receive, send)
        assert ["websocket.close"] == [message["type"] for message in sent]
        sent.clear()
        inbox += [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
        await running.app({"type": "lifespan"}, receive, send)
        assert ["lifespan.startup.complete", "lifespan.shutdown.complete"] == [message["type"] for message in sent]
