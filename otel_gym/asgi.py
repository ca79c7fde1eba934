"""Types of the ASGI interface, as the edges use them, and the marks that capture leaves in a scope."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TAKEN: Final = "otel_gym.taken"
"""Scope key: a capture middleware further out has this request already."""

ROUTE: Final = "otel_gym.route"
"""Scope key: the route whose prefix a middleware further out, with capture off, has taken off the path."""


def header_values(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> list[bytes]:
    """The values of all headers of this name (lower case), in order."""
    length = len(wanted)
    return [bytes(value) for name, value in headers if len(name) == length and name.lower() == wanted]


def some_headers(headers: Iterable[tuple[bytes, bytes]], wanted: frozenset[bytes]) -> dict[bytes, list[bytes]]:
    """The values of those of these headers (lower case) that are there, each in order; in one pass."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        lowered = bytes(name).lower()
        if lowered in wanted:
            found.setdefault(lowered, []).append(bytes(value))
    return found
