"""A session of `requests` whose answers are bounded, in time and in size: a backend may be anybody's.

The timeout of `requests` begins anew with each byte that comes, and a body is read whole, however long it is. Here one
deadline holds for a request and its answer, and the beginning of the body is enough.
"""

from __future__ import annotations

import http.client
import io
import time
from functools import cache
from typing import Any

ANSWER_BYTES = 64 * 1024
_DEFAULT_SECONDS = 10.0
_PIECE_BYTES = 64 * 1024


class _Deadline:
    """Of the request that is under way."""

    def __init__(self) -> None:
        self._at = 0.0

    def begin(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds.

        Raises:
            TimeoutError: none is left.
        """
        left = self._at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the whole request took too long")
        return left


class _InTime(io.RawIOBase):
    """What comes from a socket until a deadline."""

    def __init__(self, raw: Any, sock: Any, deadline: _Deadline) -> None:
        self._raw = raw
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._deadline.left())
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        super().close()
        self._raw.close()


def _pools(deadline: _Deadline) -> dict[str, Any]:
    """Connection pools by scheme, as urllib3's `pool_classes_by_scheme`."""
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool

    class Answer(http.client.HTTPResponse):
        def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
            super().__init__(sock, *args, **kwargs)
            self.fp = io.BufferedReader(_InTime(self.fp.detach(), sock, deadline))

    def in_time(connection: Any) -> Any:
        class Connection(connection):  # type: ignore[misc]  # urllib3's, for either scheme
            response_class = Answer

            def send(self, data: Any) -> None:
                if not isinstance(data, bytes):
                    super().send(data)
                    return
                for start in range(0, len(data), _PIECE_BYTES):
                    if self.sock is not None:  # it connects with the first piece
                        self.sock.settimeout(deadline.left())
                    super().send(data[start : start + _PIECE_BYTES])

        return Connection

    class Pool(HTTPConnectionPool):
        ConnectionCls = in_time(HTTPConnectionPool.ConnectionCls)

    class TlsPool(HTTPSConnectionPool):
        ConnectionCls = in_time(HTTPSConnectionPool.ConnectionCls)

    return {"http": Pool, "https": TlsPool}


@cache
def bounded_session_class() -> Any:
    """The class, made when `requests` is there."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3 import ProxyManager

    class Adapter(HTTPAdapter):
        def __init__(self, pools: dict[str, Any]) -> None:
            self._pools = pools
            super().__init__()

        def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
            super().init_poolmanager(*args, **kwargs)
            self.poolmanager.pool_classes_by_scheme = self._pools

        def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
            manager = super().proxy_manager_for(*args, **kwargs)
            if isinstance(manager, ProxyManager):  # that of SOCKS has connections of its own
                manager.pool_classes_by_scheme = self._pools
            return manager

    class BoundedSession(requests.Session):
        """Follows no redirect. Who sends asks for the `beginning` of the answer's body, nobody else for any of it."""

        def __init__(self) -> None:
            super().__init__()
            self._deadline = _Deadline()
            for scheme in ("http://", "https://"):
                self.mount(scheme, Adapter(_pools(self._deadline)))

        def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
            seconds = kwargs.get("timeout")
            self._deadline.begin(seconds if isinstance(seconds, (int, float)) else _DEFAULT_SECONDS)
            request.headers["Accept-Encoding"] = "identity"  # what is small may become large otherwise
            return super().send(request, **{**kwargs, "allow_redirects": False, "stream": True})

        def get_redirect_target(self, resp: requests.Response) -> None:
            """None: for another one, `requests` would read the body of the answer whole."""

        def beginning(self, response: requests.Response) -> bytes:
            """Of the body, as far as it comes in time; a connection with more to come is closed."""
            try:
                encoded = "Content-Encoding" in response.headers
                data: bytes = b"" if encoded else response.raw.read(ANSWER_BYTES, decode_content=False)
            except Exception:  # noqa: BLE001  the status has said what matters
                data = b""
            finally:
                response.close()
            return data

    return BoundedSession
