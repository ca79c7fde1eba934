"""Keys: of the upstream, put in the place of the client's; and of the clients, for the gateway's own door.

A key is read once, at start. It is in no repr, no log, no record and no span.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from otel_gym.errors import SettingsError
from otel_gym.gateway.headers import Headers
from otel_gym.settings import secret

AUTHORIZATION: Final = b"authorization"
KEY_HEADERS: Final = frozenset({AUTHORIZATION, b"x-api-key", b"api-key", b"x-goog-api-key"})
"""Where clients of model APIs put their keys."""

_KEY = re.compile(rb"[\x21-\x7e]+")


class Key:
    """A secret that goes out in a header and nowhere else."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "Key(…)"

    @classmethod
    def from_environment(cls, variable: str) -> Key:
        """The key that an environment variable holds.

        Raises:
            SettingsError: it is unset, or no key.
        """
        return cls(_checked(secret(variable).encode("utf-8", "surrogateescape"), f"the variable {variable}"))

    @classmethod
    def from_file(cls, path: Path) -> Key:
        """The key that is all of a file.

        Raises:
            SettingsError: it cannot be read, or holds no key.
        """
        return cls(_checked(_read(path), f"the key file {str(path)!r}"))

    def in_place(self, headers: Headers, header: bytes | None) -> Headers:
        """The headers with this key instead of the client's.

        Args:
            headers: of a request, names in lower case.
            header: where the upstream looks for keys; None: where the client had its own, else `Authorization`.
        """
        if header is None:
            theirs = [name for name, _ in headers if name in KEY_HEADERS]
            header = theirs[0] if theirs else AUTHORIZATION
        value = b"Bearer " + self._value if header == AUTHORIZATION else self._value
        return [*without_keys(headers), (header, value)]


def without_keys(headers: Headers) -> Headers:
    """The headers without the client's keys."""
    return [pair for pair in headers if pair[0] not in KEY_HEADERS]


class ClientKeys:
    """The keys of those who may call. Only their digests are kept.

    Args:
        keys: each printable ASCII without spaces.
    """

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._digests = [_digest(key) for key in keys]

    def __repr__(self) -> str:
        return f"ClientKeys({len(self._digests)} keys)"

    @classmethod
    def from_file(cls, path: Path) -> ClientKeys:
        """One key a line; empty lines and those that begin with `#` are passed over.

        Raises:
            SettingsError: the file cannot be read, or holds no key, or something that is none.
        """
        lines = [line.strip() for line in _read(path).splitlines()]
        keys = [line for line in lines if line and not line.startswith(b"#")]
        what = f"the client keys file {str(path)!r}"
        if not keys:
            raise SettingsError(f"{what}: got no key; allowed: one a line; write one, or leave the option out")
        return cls(_checked(key, what) for key in keys)

    def admit(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether the request has one of the keys; takes as long for a wrong one as for a right one."""
        admitted = False
        for name, value in headers:
            if name in KEY_HEADERS:
                scheme, _, token = value.partition(b" ")
                offered = token.strip() if name == AUTHORIZATION and scheme.lower() == b"bearer" else value
                digest = _digest(offered)
                for known in self._digests:
                    admitted |= hmac.compare_digest(known, digest)
        return admitted


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _checked(text: bytes, what: str) -> bytes:
    """The key without the space around it; what is wrong is said without showing it."""
    key = text.strip()
    if not _KEY.fullmatch(key):
        got = f"{len(key)} bytes with a space or another character that no key has" if key else "nothing"
        raise SettingsError(f"{what}: got {got}; allowed: printable ASCII without spaces; correct it")
    return key


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(
            f"key file: got {str(path)!r}, which cannot be read ({error.strerror}); allowed: a file with keys; correct "
            "the path"
        ) from None
