"""The client that speaks to the upstreams: many small connection pools behind one transport.

httpcore looks through its whole pool at the beginning and the end of each request, asks the system about each idle
connection, and for each looks through all of them once more: the end of 500 streams would hold up the event loop for
seconds. A pool of a few connections costs microseconds.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import Final

import httpx

POOL_SIZES: Final = {"http": 4, "https": 32}
"""Requests of one pool at once. Behind TLS there may be HTTP/2, where they share a connection."""


@dataclass(frozen=True)
class Limits:
    """Connections to the upstreams and times to wait, seconds; None waits for ever.

    Attributes:
        max_connections: to all upstreams together; a request above them waits `pool_timeout_s`.
        keepalive_s: for how long an idle connection is kept; below the 5 s after which many servers close theirs, since
            a request that crosses such a close is lost.
        connect_timeout_s, write_timeout_s: of one attempt.
        read_timeout_s: between two pieces of an answer, and before the first.
    """

    max_connections: int = 1000
    keepalive_s: float = 4.0
    connect_timeout_s: float | None = 10.0
    read_timeout_s: float | None = 600.0
    write_timeout_s: float | None = 60.0
    pool_timeout_s: float | None = 60.0

    @property
    def timeout(self) -> httpx.Timeout:
        """As httpx wants it."""
        return httpx.Timeout(
            connect=self.connect_timeout_s,
            read=self.read_timeout_s,
            write=self.write_timeout_s,
            pool=self.pool_timeout_s,
        )


def make_client(limits: Limits | None = None, verify: ssl.SSLContext | None = None) -> httpx.AsyncClient:
    """The client of a gateway: HTTP/2 where the upstream offers it, no cookie of one client kept for another.

    Args:
        limits: the defaults where not given.
        verify: how certificates are checked; httpx's way where not given.
    """
    limits = limits or Limits()
    return httpx.AsyncClient(
        transport=Pools(limits, verify or httpx.create_ssl_context()),
        timeout=limits.timeout,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        follow_redirects=False,
    )


class Pools(httpx.AsyncBaseTransport):
    """As many pools as are busy at once, each of a size for the scheme of its upstreams.

    Args:
        limits: of connections; times to wait come with each request.
        verify: how certificates are checked.
    """

    def __init__(self, limits: Limits, verify: ssl.SSLContext) -> None:
        self._limits = limits
        self._verify = verify
        self._pools: dict[str, list[_Pool]] = {scheme: [] for scheme in POOL_SIZES}
        self._places = asyncio.Semaphore(limits.max_connections)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request by the first pool that has room; idle connections lie in the first ones."""
        if self._places.locked():
            await self._wait(request)
        else:
            await self._places.acquire()
        scheme = request.url.scheme
        pool = next((pool for pool in self._pools[scheme] if pool.busy < pool.size), None)
        if pool is None:
            pool = _Pool(POOL_SIZES[scheme], self._limits, self._verify)
            self._pools[scheme].append(pool)
        place = _Place(pool, self._places)
        try:
            response = await pool.transport.handle_async_request(request)
        except BaseException:
            place.leave()
            raise
        response.stream = _Answer(response.stream, place)  # type: ignore[arg-type]  # an async stream, from an async transport
        return response

    async def _wait(self, request: httpx.Request) -> None:
        timeout = request.extensions.get("timeout", {}).get("pool")
        try:
            await asyncio.wait_for(self._places.acquire(), timeout)
        except asyncio.TimeoutError:
            raise httpx.PoolTimeout("all connections are busy", request=request) from None

    async def aclose(self) -> None:
        """Close every connection."""
        for pool in itertools.chain(*self._pools.values()):
            await pool.transport.aclose()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()


class _Pool:
    """A pool, and how many requests it serves."""

    __slots__ = ("busy", "size", "transport")

    def __init__(self, size: int, limits: Limits, verify: ssl.SSLContext) -> None:
        self.size = size
        self.busy = 0
        self.transport = httpx.AsyncHTTPTransport(
            verify=verify,
            http2=True,
            limits=httpx.Limits(
                max_connections=size,
                max_keepalive_connections=size,
                keepalive_expiry=limits.keepalive_s,
            ),
        )


class _Place:
    """What a request takes in its pool from its beginning to the end of its answer."""

    __slots__ = ("_places", "_pool", "_taken")

    def __init__(self, pool: _Pool, places: asyncio.Semaphore) -> None:
        self._pool = pool
        self._places = places
        self._taken = True
        pool.busy += 1

    def leave(self) -> None:
        if self._taken:
            self._taken = False
            self._pool.busy -= 1
            self._places.release()


class _Answer(httpx.AsyncByteStream):
    """The body of an answer; its end frees the place."""

    def __init__(self, stream: httpx.AsyncByteStream, place: _Place) -> None:
        self._stream = stream
        self._place = place

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._stream.__aiter__()

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            self._place.leave()
