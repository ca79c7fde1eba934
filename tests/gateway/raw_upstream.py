"""An upstream that is nothing but a socket: it says just the bytes that a test gives it, when the test says so."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

Play = Callable[["Connection"], Awaitable[None]]
"""What the upstream does with one connection."""


class Connection:
    """One connection of the gateway.

    Attributes:
        heads: of the requests that came, each with its blank line.
        bodies: of those, as far as their length was said.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []

    async def request(self) -> bytes:
        """Read a request; its head."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        if fields.get(b"transfer-encoding") == b"chunked":
            body = b""
            while size := int(await self._reader.readline(), 16):
                body += (await self._reader.readexactly(size + 2))[:-2]
            await self._reader.readline()
        else:
            body = await self._reader.readexactly(int(fields.get(b"content-length", b"0")))
        self.bodies.append(body)
        return head

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def gone(self) -> None:
        """Wait until the other side closes."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(1 << 16):
                pass

    def reset(self) -> None:
        """Hang up as a killed server does."""
        raw: socket.socket = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


class RawUpstream:
    """What a test knows of it.

    Attributes:
        url: its base URL.
        connections: all that came.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.connections: list[Connection] = []

    @property
    def heads(self) -> list[bytes]:
        return [head for connection in self.connections for head in connection.heads]

    @property
    def bodies(self) -> list[bytes]:
        return [body for connection in self.connections for body in connection.bodies]


@contextlib.asynccontextmanager
async def playing(play: Play) -> AsyncIterator[RawUpstream]:
    """An upstream on a free port, closed at the end."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        connection = Connection(reader, writer)
        upstream.connections.append(connection)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await play(connection)
        finally:
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    upstream = RawUpstream(server.sockets[0].getsockname()[1])
    try:
        yield upstream
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answering(*answers: bytes) -> Play:
    """Give the answers in turn, one for each request of any connection, the last one again and again."""
    left = list(answers)

    async def play(connection: Connection) -> None:
        while True:
            await connection.request()
            await connection.say(left.pop(0) if len(left) > 1 else left[0])

    return play


def http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
