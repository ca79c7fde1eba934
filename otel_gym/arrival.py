"""What the request of a call said of itself: kept as it came, read off the event loop."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from otel_gym import semconv
from otel_gym.semconv import LONGEST_SEARCHED, AttributeValue

_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:]*)(?::([0-9]{1,5}))?")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Arrival:
    """What the request said of itself, kept as it came.

    Args:
        scope: as the application gets it, without prefix.
        headers: as the client sent them.
    """

    __slots__ = ("headers", "path", "scheme", "server")

    def __init__(self, scope: Mapping[str, Any], headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.headers = headers
        self.path: str = scope["path"]
        self.scheme: str = scope.get("scheme", "http")
        self.server = scope.get("server")

    def facts(self) -> dict[str, AttributeValue]:
        """Method, path, and the address that the client asked."""
        facts: dict[str, AttributeValue] = {
            semconv.HTTP_REQUEST_METHOD: "POST",
            semconv.URL_PATH: self.path[:LONGEST_SEARCHED],
        }
        facts.update(_address(*(self.asked() or self.listening())))
        return facts

    def asked(self) -> tuple[str, int | None] | None:
        """Host and port by the `Host` header; None where it says nothing of use."""
        for name, value in self.headers:
            if name.lower() == b"host":
                match = _HOST.fullmatch(bytes(value).decode("latin-1").strip())
                if match is None or not match[1]:
                    return None
                return match[1].strip("[]"), int(match[2]) if match[2] else _DEFAULT_PORTS.get(self.scheme)
        return None

    def listening(self) -> tuple[str, int | None]:
        """Where the server listens; "" when it does not say."""
        try:
            host, port = self.server or ("", None)
        except (TypeError, ValueError):
            return "", None
        return str(host or ""), port if isinstance(port, int) else None

    def listening_facts(self) -> dict[str, AttributeValue]:
        """Where the server listens, for metrics: what clients ask for is theirs to choose, and has no bound."""
        return _address(*self.listening())


def _address(host: str, port: int | None) -> dict[str, AttributeValue]:
    if not host:
        return {}
    address: dict[str, AttributeValue] = {semconv.SERVER_ADDRESS: host[:LONGEST_SEARCHED]}
    return address if port is None else {**address, semconv.SERVER_PORT: port}
