"""The model servers that an agent knows by name, and which of them a URL belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from otel_gym.errors import UnknownModelServerError

_API = "/v1"
_DEFAULT_PORTS = {"http": 80, "https": 443}


class ModelServers:
    """Base URLs by name (the setting `model_servers`). A `/v1` at the end of a URL is the API's, not the server's.

    Args:
        urls: name → base URL.
    """

    def __init__(self, urls: Mapping[str, str]) -> None:
        self._urls = {name: url.rstrip("/").removesuffix(_API) for name, url in urls.items()}
        places = [(_place(url), urlsplit(url).path.encode()) for url in self._urls.values()]
        # The longest path first: of two servers behind one proxy, the one that is meant.
        self._places = sorted(places, key=lambda place: -len(place[1]))

    def url(self, name: str) -> str:
        """The base URL of a server, without `/v1`.

        Raises:
            UnknownModelServerError: there is none of that name.
        """
        try:
            return self._urls[name]
        except KeyError:
            raise UnknownModelServerError(name, sorted(self._urls)) from None

    def root_of(self, scheme: str, host: str, port: int | None, raw_path: bytes) -> bytes | None:
        """The path of the server that a request goes to; None for a request to anybody else."""
        place = scheme, host.lower(), port or _DEFAULT_PORTS.get(scheme)
        for known, root in self._places:
            if known == place and raw_path.startswith(root + b"/"):
                return root
        return None


def _place(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or _DEFAULT_PORTS.get(parts.scheme)
