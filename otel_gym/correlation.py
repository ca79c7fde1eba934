"""Which rollout a request belongs to: the prefix of its path, and what is left of the path without it.

`/ng-rollout/<rollout_id>[/training-token-capture]/<rest>` → the id and `/<rest>`. Source: the capture contract,
"Which calls are captured".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, unquote_to_bytes

PREFIX = "/ng-rollout/"
TOKEN_CAPTURE_SEGMENT = "/training-token-capture"  # noqa: S105  a path segment, no secret
BAGGAGE_KEY = "ng.rollout.id"

_ROLLOUT_PATH = re.compile(rf"({PREFIX}([^/]+)(?:{TOKEN_CAPTURE_SEGMENT}(?=/))?)(/[^\n]*)")

_current: ContextVar[str | None] = ContextVar("otel_gym_rollout_id", default=None)


def current_rollout_id() -> str | None:
    """The rollout that the request being served belongs to, as its path said it; None outside of one."""
    return _current.get()


class Route(NamedTuple):
    """A request path under a rollout prefix.

    Attributes:
        rollout_id: whatever the path had, checked by nobody yet.
        root: the proxy path before the prefix, "" without one.
        prefix: what was taken out, training segment included: `/ng-rollout/3-1`.
        rest: the path below root and prefix; it begins with a slash.
        path: what the application sees: root and rest.
        raw_path: the same with its percent-encoding.
    """

    rollout_id: str
    root: str
    prefix: str
    rest: str
    path: str
    raw_path: bytes


def find_route(scope: Mapping[str, Any]) -> Route | None:
    """The rollout route of an ASGI scope; None when its path has no rollout prefix.

    The prefix stands at the beginning of the path, or behind the `root_path` of a server that is mounted below one.
    """
    path: str = scope["path"]
    root = ""
    if not path.startswith(PREFIX):
        root = root_of(scope)
        if not root or not path.startswith(root + PREFIX):
            return None
    match = _ROLLOUT_PATH.fullmatch(path, len(root))
    if match is None:
        return None
    prefix, rollout_id, rest = match.groups()
    raw_path = scope.get("raw_path") or b""
    inner = root + rest
    if raw_path == path.encode("utf-8", "surrogatepass") and b"%" not in raw_path and rest.startswith("/"):
        raw = inner.encode("utf-8", "surrogatepass")  # nothing is escaped, as in nearly every path
    else:
        raw = _strip_raw(raw_path, root, prefix, rest)
    return Route(rollout_id, root, prefix, rest, inner, raw)


def root_of(scope: Mapping[str, Any]) -> str:
    """The `root_path` of a server or application that is mounted below one, without a slash at its end."""
    return (scope.get("root_path") or "").rstrip("/")


def _strip_raw(raw_path: bytes, root: str, prefix: str, rest: str) -> bytes:
    """Take out of the encoded path just what was taken out of the decoded one."""
    start = _encoded_length(raw_path, root)
    if start is None:
        start = 0  # the server put root_path into the path only
    length = _encoded_length(raw_path[start:], prefix)
    if length is not None and raw_path[start + length : start + length + 1] == b"/":
        return raw_path[:start] + raw_path[start + length :]
    # The prefix ends inside an escape (`..%2F..`): there is no encoded spelling of the rest to keep.
    return percent_encoded(root + rest)


def percent_encoded(path: str) -> bytes:
    """A decoded path as it may stand on the wire, whatever characters it has."""
    return quote(path, safe="/:@!$&'()*+,;=~-._", errors="surrogatepass").encode("ascii")


def _encoded_length(raw: bytes, decoded: str) -> int | None:
    """How many bytes of a percent-encoded path spell this decoded beginning; None when it begins otherwise."""
    wanted = decoded.encode("utf-8", "surrogatepass")
    if raw.startswith(wanted) and b"%" not in wanted:
        return len(wanted)
    position = 0
    for byte in wanted:
        if raw[position : position + 1] == b"%" and (escape := unquote_to_bytes(raw[position : position + 3])) != b"%":
            if escape != bytes((byte,)):
                return None
            position += 3
        elif raw[position : position + 1] == bytes((byte,)):
            position += 1
        else:
            return None
    return position


def declared_rollout_id(headers: Iterable[tuple[bytes, bytes]], header: str | None, baggage: bool) -> str | None:
    """The rollout id from the configured header, else from W3C baggage (`ng.rollout.id`); None without either."""
    wanted = header.encode("latin-1") if header else None
    from_baggage = None
    for name, value in headers:
        lowered = name.lower()
        if lowered == wanted and value.strip():
            return value.strip().decode("latin-1")
        if baggage and lowered == b"baggage" and from_baggage is None:
            from_baggage = _baggage_member(value.decode("latin-1"))
    return from_baggage


def _baggage_member(value: str) -> str | None:
    for member in value.split(","):
        key, equals, text = member.partition(";")[0].partition("=")
        if equals and key.strip() == BAGGAGE_KEY:
            return unquote(text.strip()) or None
    return None


def enter(rollout_id: str | None) -> str | None:
    """Make this the current rollout; returns the outer one, for `leave`.

    No context token is kept: a coroutine may be advanced in one task and closed in another, where a token has no value.
    """
    outer = _current.get()
    _current.set(rollout_id)
    return outer


def leave(outer: str | None) -> None:
    """The request is over: the outer rollout is the current one again."""
    _current.set(outer)
