"""Which headers go on to the other side: all but those that belong to one connection.

Headers are a list of byte pairs from end to end, so that repeated ones keep their number and their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

Headers = list[tuple[bytes, bytes]]

HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Headers of one connection (RFC 9110, section 7.6.1); those that `Connection` names are more of them."""

_OF_THE_GATEWAY = HOP_BY_HOP | {b"host", b"expect"}  # the server has answered an Expect before the body is read


def to_upstream(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """A request's headers, names in lower case, without `Host`, which is the upstream's own."""
    return _without(headers, _OF_THE_GATEWAY)


def to_client(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """An answer's headers, names in lower case as ASGI wants them."""
    return _without(headers, HOP_BY_HOP)


def _without(headers: Iterable[tuple[bytes, bytes]], left_out: frozenset[bytes]) -> Headers:
    kept = []
    named: list[bytes] = []
    for name, value in headers:
        lowered = name.lower()
        if lowered == b"connection":
            named += [token.strip().lower() for token in value.split(b",")]
        elif lowered not in left_out:
            kept.append((lowered, value))
    if named and not _USUAL.issuperset(named):
        kept = [header for header in kept if header[0] not in named]
    return kept


_USUAL = frozenset({b"", b"close", b"keep-alive"})


def content_length(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """Length of a body as its headers say it; None when they do not, or not in one voice."""
    found = {value for name, value in headers if name == b"content-length"}
    if len(found) != 1:
        return None
    (value,) = found
    return int(value) if value.isdigit() else None
