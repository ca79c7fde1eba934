"""The servers behind the gateway, and which of them a request is for."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from urllib.parse import unquote, urlsplit

import httpx

from otel_gym.correlation import percent_encoded
from otel_gym.errors import SettingsError
from otel_gym.gateway.keys import Key

_VERSION = b"/v1"


class Upstream:
    """One server.

    Args:
        url: its base URL, with or without the `/v1` that the paths of its API begin with.
        name: for logs and for `default`.
        models: names of models, or patterns as a shell has them (`gpt-*`), for which it is asked.
        key: put in the place of the client's; None: the client's key passes.
        key_header: where it looks for keys; None: where the client has its own.

    Raises:
        SettingsError: the URL is none, or has a user in it.
    """

    def __init__(
        self,
        url: str,
        name: str = "upstream",
        models: Sequence[str] = (),
        key: Key | None = None,
        key_header: str | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise SettingsError(
                f"upstream {name!r}: got {url!r}; allowed: an http(s) URL without query; write it in full, such as "
                "'https://api.openai.com/v1'"
            )
        if "@" in parts.netloc:  # the URL is shown in logs
            raise SettingsError(
                f"upstream {name!r}: got a URL with a user in it; allowed: one without; name the variable or the file "
                "that holds the key instead"
            )
        self.url = url
        self.name = name
        self.models = tuple(models)
        self.key = key
        self.key_header = None if key_header is None else key_header.lower().encode("ascii")
        self.origin = httpx.URL(f"{parts.scheme}://{parts.netloc}")
        self._path = percent_encoded(unquote(parts.path.rstrip("/")))
        self._unversioned = self._path.removesuffix(_VERSION)

    def __repr__(self) -> str:
        return f"Upstream({self.url!r}, {self.name!r})"

    def target(self, raw_path: bytes, query: bytes) -> bytes:
        """The request target on this server: path and query as the client sent them, below the base URL's path."""
        base = self._unversioned if raw_path.startswith(b"/v1/") or raw_path == b"/v1" else self._path
        return base + raw_path + (b"?" + query if query else b"")


class Upstreams:
    """All of them.

    Args:
        upstreams: one or more, with different names.
        default: name of the one that is asked for models that none names; None: nobody is. What is no model call goes
            to it too, else to the first.
    """

    def __init__(self, upstreams: Sequence[Upstream], default: str | None = None) -> None:
        by_name = {upstream.name: upstream for upstream in upstreams}
        if not upstreams or len(by_name) != len(upstreams):
            raise SettingsError("upstreams: got none, or two of one name; allowed: one or more, each with its own name")
        if default is not None and default not in by_name:
            raise SettingsError(f"default: got {default!r}; allowed: {', '.join(by_name)}; name one of them")
        self.all = tuple(upstreams)
        self._default = by_name[default] if default is not None else None
        self._exact = {model: upstream for upstream in reversed(self.all) for model in upstream.models}
        self._patterns = [
            (model, upstream) for upstream in self.all for model in upstream.models if set(model) & set("*?[")
        ]

    @property
    def only(self) -> Upstream | None:
        """The one there is, where no request need be read to know it."""
        return self.all[0] if len(self.all) == 1 else None

    @property
    def without_model(self) -> Upstream:
        """For what is no model call."""
        return self._default or self.all[0]

    def of_model(self, model: str) -> Upstream | None:
        """The upstream of a model: by its name, by the first pattern that it matches, else the default."""
        found = self._exact.get(model)
        if found is None:
            found = next((upstream for pattern, upstream in self._patterns if fnmatchcase(model, pattern)), None)
        return found or self._default
