"""The agent's server, as its client sees it: one row goes, one result or the reason for none comes back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from otel_gym.collect.answers import Answer, LargeAnswer
from otel_gym.errors import MissingExtraError, SettingsError

if TYPE_CHECKING:
    import httpx

MAX_RESULT_BYTES = 268_435_456
"""A longer result is not read to its end."""

CONNECT_TIMEOUT_S = 10.0

_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_SHOWN_BYTES = 2_000
_HEADERS = {"content-type": "application/json", "accept-encoding": "identity"}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no result.

    Attributes:
        code: `connection`, `timeout`, `http_status`, `too_large`, `malformed`, `input_invalid`, `internal`.
        message: for a person.
        status: of HTTP, where an answer began.
        retry: whether another try makes sense.
        began: whether the agent may have begun the rollout, so that another try needs an attempt of its own.
        wait_s: how long the agent asks to be left alone.
    """

    code: str
    message: str
    status: int | None = None
    retry: bool = False
    began: bool = True
    wait_s: float | None = None


class Agent:
    """Posts rows to `{url}/run`.

    Args:
        url: base URL of the agent's server.
        directory: for answers that are too long to be kept in memory.
        timeout_s: seconds that a rollout may take; None: as long as it wants.
        max_bytes: of a result.

    Raises:
        MissingExtraError: httpx is not installed.
        SettingsError: the URL is none.
    """

    def __init__(
        self, url: str, directory: Path, timeout_s: float | None = None, max_bytes: int = MAX_RESULT_BYTES
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise MissingExtraError("otel-gym collect", "client") from error
        self._httpx = httpx
        self.url = url.rstrip("/") + "/run"
        self._directory = directory
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        try:
            httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise SettingsError(f"--agent: got {url!r} ({error}); allowed: a URL, such as http://host:8001") from error
        self._tls = httpx.create_ssl_context()
        # A client for each rollout that runs: the pool of one looks through all of its connections for each request.
        self._clients: list[httpx.AsyncClient] = []
        self._idle: list[httpx.AsyncClient] = []

    async def __aenter__(self) -> Agent:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for client in self._clients:
            await client.aclose()

    async def run(self, body: bytes, headers: Mapping[str, str] | None = None) -> bytes | LargeAnswer | Failure:
        """Post one row; the answer, or why there is none. Raises nothing but cancellation."""
        client = self._idle.pop() if self._idle else self._new_client()
        try:
            if self._timeout_s is None:
                return await self._post(client, body, headers)
            return await asyncio.wait_for(self._post(client, body, headers), self._timeout_s)
        except (asyncio.TimeoutError, TimeoutError):
            return Failure("timeout", f"no result within {self._timeout_s:g} s")
        except self._httpx.ConnectTimeout:
            return self._unreachable(f"no connection within {CONNECT_TIMEOUT_S:g} s")
        except self._httpx.ConnectError as error:
            return self._unreachable(str(error) or "refused")
        except self._httpx.HTTPError as error:
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return Failure("connection", f"the connection to {self.url} broke: {what}", retry=True)
        except Exception as error:  # noqa: BLE001 - whatever the client makes of one answer, the other rows go on
            return Failure("internal", f"posting to {self.url} failed: {type(error).__name__}: {error}")
        finally:
            self._idle.append(client)

    def _new_client(self) -> httpx.AsyncClient:
        timeout = self._httpx.Timeout(None, connect=CONNECT_TIMEOUT_S)
        client = self._httpx.AsyncClient(timeout=timeout, headers=_HEADERS, verify=self._tls)
        self._clients.append(client)
        return client

    def _unreachable(self, why: str) -> Failure:
        return Failure("connection", f"{self.url} cannot be reached: {why}", retry=True, began=False)

    async def _post(
        self, client: httpx.AsyncClient, body: bytes, headers: Mapping[str, str] | None
    ) -> bytes | LargeAnswer | Failure:
        async with client.stream("POST", self.url, content=body, headers=headers) as answer:
            if answer.status_code != 200:
                return await self._refused(answer)
            length = answer.headers.get("content-length", "")
            if length.isascii() and length.isdigit() and int(length) > self._max_bytes:
                return self._too_large(f"{int(length):,} bytes")
            result = Answer(self._directory)
            try:
                async with _closing(answer.aiter_bytes()) as stream:
                    async for piece in stream:
                        if result.size + len(piece) > self._max_bytes:
                            return self._too_large(f"more than {self._max_bytes:,} bytes")
                        await result.add(piece)
                return await result.whole()
            finally:
                result.forget()

    def _too_large(self, got: str) -> Failure:
        return Failure("too_large", f"the result has {got}; at most {self._max_bytes:,} are read", status=200)

    async def _refused(self, answer: httpx.Response) -> Failure:
        said = b""
        async with _closing(answer.aiter_bytes()) as stream:
            async for piece in stream:
                said += piece[:_SHOWN_BYTES]
                if len(said) >= _SHOWN_BYTES:
                    break
        text = said[:_SHOWN_BYTES].decode("utf-8", "replace").strip()
        message = f"{self.url} answered {answer.status_code}" + (f": {text}" if text else "")
        status = answer.status_code
        wait = _seconds(answer.headers.get("retry-after"))
        return Failure("http_status", message, status=status, retry=status in _RETRIED, wait_s=wait)


@contextlib.asynccontextmanager
async def _closing(stream: Any) -> AsyncIterator[AsyncIterator[bytes]]:
    """An iterator that is left early is closed at once, not when it is collected."""
    try:
        yield stream
    finally:
        await stream.aclose()


def _seconds(retry_after: str | None) -> float | None:
    """Seconds of a `Retry-After`; a date is passed over."""
    if retry_after is None or not (retry_after.isascii() and retry_after.isdigit()):
        return None
    return float(retry_after)
