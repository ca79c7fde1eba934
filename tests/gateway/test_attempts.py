"""Retries: each attempt has its own record, and only the last reaches the client."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from otel_gym.gateway import Limits, Upstream, attempts
from otel_gym.testing import Exchange, answer, stream
from tests.gateway.gateways import gateway, until
from tests.gateway.raw_upstream import Connection, answering, http, playing

CHAT = "/ng-rollout/0-0/v1/chat/completions"
BODY = json.dumps(answer("chat", "hi")).encode()
BUSY = http(b'{"error":{"message":"busy"}}', "503 Service Unavailable", "Retry-After: 0")
LIMIT = http(b'{"error":{"message":"slow"}}', "429 Too Many Requests", "Retry-After: 0")
WRONG = http(b'{"error":{"message":"no"}}', "400 Bad Request")


def marks(records: list[dict[str, Any]]) -> list[Any]:
    return [(record["status_code"], record["local_response_reason"]) for record in records]


async def call(app: Any, body: Any = b'{"model":"m"}') -> tuple[int, bytes]:
    async with Exchange(app, CHAT, body) as exchange:
        messages = await exchange.rest()
    starts = [message for message in messages if message["type"] == "http.response.start"]
    assert 1 == len(starts), "one answer reaches the client"
    return starts[0]["status"], exchange.body


@pytest.mark.parametrize(
    ("answers", "retries", "status", "marked"),
    [
        ([BUSY, http(BODY)], 0, 503, [(503, None)]),
        ([http(BODY)], 2, 200, [(200, None)]),
        ([BUSY, http(BODY)], 2, 200, [(503, "attempt_1_retried"), (200, "attempt_2")]),
        ([LIMIT, BUSY, WRONG], 2, 400, [(429, "attempt_1_retried"), (503, "attempt_2_retried"), (400, "attempt_3")]),
        ([BUSY], 1, 503, [(503, "attempt_1_retried"), (503, "attempt_2")]),
        ([WRONG, http(BODY)], 1, 400, [(400, None)]),
        # told to wait for longer than anybody should: the client hears it
        ([http(b"{}", "429 x", "Retry-After: 3600"), http(BODY)], 1, 429, [(429, None)]),
    ],
)
async def test_each_attempt_is_recorded_and_marked(
    tmp_path: Path, answers: list[bytes], retries: int, status: int, marked: list[Any]
) -> None:
    async with (
        playing(answering(*answers)) as upstream,
        gateway(tmp_path, Upstream(upstream.url), retries=retries) as running,
    ):
        got, _ = await call(running.app, [b'{"mod', b'el":"m"}'])
    assert (status, marked) == (got, marks(running.records()))
    assert [{"model": "m"}] * len(marked) == [record["request"] for record in running.records()]
    assert [b'{"model":"m"}'] * len(marked) == upstream.bodies
    assert len(marked) == len({record["model_call_id"] for record in running.records()})


async def test_an_upstream_that_gives_no_answer_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_WAIT_S", 0.01)
    asked: list[Connection] = []

    async def play(connection: Connection) -> None:
        await connection.request()
        asked.append(connection)
        if len(asked) == 1:
            connection.reset()
        elif len(asked) == 2:
            await connection.gone()
        else:
            await connection.say(http(BODY))

    limits = Limits(read_timeout_s=0.2)
    async with (
        playing(play) as upstream,
        gateway(tmp_path, Upstream(upstream.url), limits=limits, retries=2) as running,
    ):
        assert (200, BODY) == await call(running.app)
    assert [(502, "attempt_1_retried"), (504, "attempt_2_retried"), (200, "attempt_3")] == marks(running.records())


async def test_nothing_is_retried_once_a_byte_has_gone_to_the_client(tmp_path: Path) -> None:
    async def play(connection: Connection) -> None:
        await connection.request()
        piece = stream("chat", "Hel")[1]
        await connection.say(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 999\r\n\r\n" + piece
        )

    async with playing(play) as upstream, gateway(tmp_path, Upstream(upstream.url), retries=3) as running:
        status, body = await call(running.app)
    assert (200, stream("chat", "Hel")[1], 1) == (status, body, len(upstream.heads))
    assert [(200, None)] == marks(running.records())


async def test_a_client_that_leaves_while_the_gateway_waits_is_not_served_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "FIRST_WAIT_S", 20.0)
    busy = http(b"{}", "503 Service Unavailable")
    async with (
        playing(answering(busy)) as upstream,
        gateway(tmp_path, Upstream(upstream.url), retries=3) as running,
        Exchange(running.app, CHAT) as exchange,
    ):
        await until(lambda: bool(running.records()))
        exchange.disconnect()
        await asyncio.wait_for(exchange.task, 10)
    assert ([], [(503, "attempt_1_retried")]) == (exchange.received, marks(running.records()))


@pytest.mark.parametrize("value", ["soon", "-1", "1.5", "Wed, 21 Oct 2026 07:28:00 GMT", ""])
def test_what_is_no_number_of_seconds_is_no_time_to_wait(value: str) -> None:
    assert attempts._retry_after([(b"retry-after", value.encode())]) is None
