"""The client of a gateway: many requests at once, connections used again, no cookie kept."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from otel_gym.gateway import Limits, make_client
from otel_gym.gateway.pools import POOL_SIZES
from tests.gateway.gateways import until
from tests.gateway.raw_upstream import Connection, answering, http, playing


async def test_connections_are_used_again_one_after_the_other_and_side_by_side() -> None:
    async with playing(answering(http(b"{}"))) as upstream, make_client() as client:
        for _ in range(5):
            await client.get(upstream.url)
        assert 1 == len(upstream.connections)
        for _ in range(2):
            await asyncio.gather(*(client.get(upstream.url) for _ in range(3 * POOL_SIZES["http"])))
        assert len(upstream.connections) <= 3 * POOL_SIZES["http"] + 1


async def test_no_more_connections_are_opened_than_allowed_and_whoever_waits_is_served() -> None:
    async with playing(answering(http(b"{}"))) as upstream, make_client(Limits(max_connections=6)) as client:
        answers = await asyncio.gather(*(client.get(upstream.url) for _ in range(40)))
        assert [200] * 40 == [answer.status_code for answer in answers]
        assert len(upstream.connections) <= 6


async def test_a_place_is_free_again_after_a_failure_a_cancellation_and_an_answer_given_up() -> None:
    release = asyncio.Event()

    async def play(connection: Connection) -> None:
        head = await connection.request()
        if b"/reset" in head:
            connection.reset()
        elif b"/slow" in head:
            await release.wait()
        else:
            await connection.say(http(b"{}")[:-1])
            await connection.gone()

    limits = Limits(max_connections=1, pool_timeout_s=5.0)
    async with playing(play) as upstream, make_client(limits) as client:
        with pytest.raises(httpx.TransportError):
            await client.get(f"{upstream.url}/reset")
        task = asyncio.ensure_future(client.get(f"{upstream.url}/slow"))
        await until(lambda: len(upstream.heads) == 2)
        task.cancel()
        await asyncio.wait({task})
        for _ in range(2):
            async with client.stream("GET", f"{upstream.url}/part") as answer:
                assert 200 == answer.status_code
    assert 4 == len(upstream.heads)


async def test_no_cookie_of_one_client_goes_out_with_anothers_request() -> None:
    async with playing(answering(http(b"{}", "200 OK", "Set-Cookie: session=1"))) as upstream, make_client() as client:
        await client.get(upstream.url)
        await client.get(upstream.url)
    assert [] == [head for head in upstream.heads if b"cookie" in head.lower()]
