"""A client that is nothing but a socket: every byte that it sends and receives is in plain sight."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
from collections.abc import Iterator, Sequence

_DATE = re.compile(rb"^date: [^\r\n]*\r\n", re.IGNORECASE | re.MULTILINE)
_PATIENCE_S = 60.0


def request(
    path: str, play: str, *headers: str, version: str = "1.1", method: str = "POST", close: bool = True
) -> bytes:
    """A model call."""
    body = json.dumps({"model": "m", "play": play, "text": "é"}).encode()
    lines = [f"{method} {path} HTTP/{version}", "Host: model.test", "Content-Type: application/json", *headers]
    lines += [f"Content-Length: {len(body)}", *(["Connection: close"] if close else [])]
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    """A connection; each `send` is a segment of its own."""
    with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def rest(connection: socket.socket) -> bytes:
    """All bytes until the server closes."""
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def until(connection: socket.socket, wanted: bytes) -> bytes:
    """The bytes up to and with what was wanted, and what came with it; AssertionError when the server closes first."""
    got = b""
    while wanted not in got:
        data = connection.recv(1 << 16)
        assert data, f"closed after {got!r}"
        got += data
    return got


def exchange(port: int, pieces: Sequence[bytes]) -> bytes:
    """Send the pieces and give all that comes, without the `date` headers."""
    with connected(port) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return without_date(rest(connection))


def without_date(data: bytes) -> bytes:
    return _DATE.sub(b"", data)


def reset(connection: socket.socket) -> None:
    """Hang up as a killed client does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
