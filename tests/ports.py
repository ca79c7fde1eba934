"""Free ports for servers of the tests.

They lie below those that the kernel gives to clients and to whoever binds port 0 (32768 to 60999): no other test's
server gets one between the look and the start of the server that it is for.
"""

from __future__ import annotations

import contextlib
import secrets
import socket

_FIRST, _COUNT = 15_000, 15_000
_TRIES = 100


def free_ports(count: int) -> list[int]:
    """So many different ports of 127.0.0.1 that nobody listened on a moment ago."""
    with contextlib.ExitStack() as probes:
        return [_bound(probes.enter_context(socket.socket())) for _ in range(count)]


def free_port() -> int:
    """One."""
    [port] = free_ports(1)
    return port


def _bound(probe: socket.socket) -> int:
    for _ in range(_TRIES):
        port = _FIRST + secrets.randbelow(_COUNT)  # random is seeded alike in all test processes
        with contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"none of {_TRIES} ports is free")
