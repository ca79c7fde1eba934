"""Redirects that would lead a client out of its rollout: the `Location` of a 3xx keeps the prefix.

Source: the capture contract, "Which calls are captured"; divergence 19.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from otel_gym.asgi import Message, header_values
from otel_gym.correlation import PREFIX, Route, percent_encoded

Header = tuple[bytes, bytes]

_WITH_AUTHORITY = re.compile(r"((?:[A-Za-z][A-Za-z0-9+.-]*:)?//([^/?#]*))(.*)", re.DOTALL)


def redirected(scope: Mapping[str, Any], route: Route, message: Message) -> Message:
    """The start of a response as the client gets it: that of a redirect with its prefix kept, any other as it is."""
    if not 300 <= message["status"] < 400:
        return message
    hosts = header_values(scope.get("headers", ()), b"host")
    host = hosts[0].decode("latin-1") if hosts else ""
    return {**message, "headers": keep_prefix(message.get("headers", ()), host, route)}


def keep_prefix(headers: Iterable[Header], host: str, route: Route) -> list[Header]:
    """The headers of a redirect, with the route's prefix before the path of each `Location` that needs it.

    Args:
        headers: of the response, as the application sent them; order and spelling are kept.
        host: value of the request's `Host` header, "" without one.
        route: where the request's prefix stood.
    """
    return [
        (name, _rewritten(value.decode("latin-1"), host, route).encode("latin-1"))
        if name.lower() == b"location"
        else (name, value)
        for name, value in headers
    ]


def _rewritten(location: str, host: str, route: Route) -> str:
    origin, target = "", location
    match = _WITH_AUTHORITY.match(location)
    if match is not None:
        origin, authority, target = match.groups()
        if not host or authority.lower() != host.lower():
            return location
        if not target.startswith("/"):  # "http://host", "http://host?q": the path is empty, which means "/"
            target = "/" + target
    elif not location.startswith("/"):
        return location
    root = route.root if route.root and target.startswith(route.root + "/") else ""
    if target[len(root) :].startswith(PREFIX):
        return location
    # Encoded again: the id of a path may hold anything, a line end or what no header can carry among it.
    return origin + root + percent_encoded(route.prefix).decode("ascii") + target[len(root) :]
