"""What the request of a call said of itself: kept as it came, read off the event loop."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from otel_gym import semconv
from otel_gym.semconv import LONGEST_SEARCHED, AttributeValue

_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:]*)(?::([0-9]{1,5}))?")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Arrival:
    """Of one call.

    Args:
        scope: as the application gets it, without prefix.
        headers: as the client sent them.
    """

    __slots__ = ("_path", "_scheme", "_server", "headers")

    def __init__(self, scope: Mapping[str, Any], headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.headers = headers
        self._path: str = scope["path"]
        self._scheme: str = scope.get("scheme", "http")
        self._server = scope.get("server")

    def facts(self) -> Mapping[str, AttributeValue]:
        """Method, path, and the address that the client asked; to be read only."""
        host = next((value for name, value in self.headers if name == b"host" or name.lower() == b"host"), b"")
        return _facts(self._path, bytes(host), self._scheme, *self._listening())

    def listening_facts(self) -> dict[str, AttributeValue]:
        """Where the server listens, for metrics: what clients ask for is theirs to choose, and has no bound."""
        return _address(*self._listening())

    def _listening(self) -> tuple[str, int | None]:
        """Host and port of the server's socket; "" when it does not say."""
        try:
            host, port = self._server or ("", None)
        except (TypeError, ValueError):
            return "", None
        return str(host or ""), port if isinstance(port, int) else None


@lru_cache(maxsize=1024)
def _facts(path: str, host: bytes, scheme: str, address: str, port: int | None) -> Mapping[str, AttributeValue]:
    match = _HOST.fullmatch(host.decode("latin-1").strip())
    if match is not None and match[1]:
        address = match[1].strip("[]")
        port = int(match[2]) if match[2] else _DEFAULT_PORTS.get(scheme)
    return {
        semconv.HTTP_REQUEST_METHOD: "POST",
        semconv.URL_PATH: path[:LONGEST_SEARCHED],
        **_address(address, port),
    }


def _address(host: str, port: int | None) -> dict[str, AttributeValue]:
    if not host:
        return {}
    address: dict[str, AttributeValue] = {semconv.SERVER_ADDRESS: host[:LONGEST_SEARCHED]}
    return address if port is None else {**address, semconv.SERVER_PORT: port}
