"""What the request of a call said of itself: kept as it came, read off the event loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from otel_gym import semconv
from otel_gym.semconv import LONGEST_SEARCHED, AttributeValue


class Arrival:
    """Of one call.

    Args:
        scope: as the application gets it, without prefix.
        headers: as the client sent them.
    """

    __slots__ = ("_path", "_server", "headers")

    def __init__(self, scope: Mapping[str, Any], headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.headers = headers
        self._path: str = scope["path"]
        self._server = scope.get("server")

    def facts(self) -> Mapping[str, AttributeValue]:
        """Method, path, and where the server took the request; to be read only."""
        return _facts(self._path, *self._taken_at())

    def server_facts(self) -> dict[str, AttributeValue]:
        """Address and port of the socket that took the request, as far as the server says.

        Not the header `Host`: what a client writes there is its own choice, which nobody asked to have sent, and
        without a bound.
        """
        return _address(*self._taken_at())

    def _taken_at(self) -> tuple[str, int | None]:
        """Host and port; "" when it is not known."""
        try:
            host, port = self._server or ("", None)
        except (TypeError, ValueError):
            return "", None
        return str(host or ""), port if isinstance(port, int) else None


@lru_cache(maxsize=1024)
def _facts(path: str, host: str, port: int | None) -> Mapping[str, AttributeValue]:
    return {
        semconv.HTTP_REQUEST_METHOD: "POST",
        semconv.URL_PATH: path[:LONGEST_SEARCHED],
        **_address(host, port),
    }


def _address(host: str, port: int | None) -> dict[str, AttributeValue]:
    if not host:
        return {}
    address: dict[str, AttributeValue] = {semconv.SERVER_ADDRESS: host[:LONGEST_SEARCHED]}
    return address if port is None else {**address, semconv.SERVER_PORT: port}
