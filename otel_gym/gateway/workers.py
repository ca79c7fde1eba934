"""A worker that stages tokens: what it is asked for one call, and what its answer becomes.

All that reads or writes JSON runs off the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

import httpx

from otel_gym.content_encoding import Decoder
from otel_gym.errors import ConversionError
from otel_gym.gateway.asking import Asking, failure
from otel_gym.gateway.failures import GatewayFailure
from otel_gym.gateway.headers import Headers, to_upstream
from otel_gym.gateway.outcomes import Outcome
from otel_gym.gateway.upstreams import Upstream
from otel_gym.staging import CallRecord, CaptureAdmission, CommitCoords
from otel_gym.staging.buffered import BufferedCall
from otel_gym.staging.ledger import CallLedger
from otel_gym.staging.replay import Commit, commit_of, json_bytes
from otel_gym_jsonl import json_text

logger = logging.getLogger(__name__)

T = TypeVar("T")

WORKER_PATH: Final = b"/v1/chat/completions"
CANNOT_BE_GIVEN: Final = "The worker's answer cannot be given in this API."

# Of the client's body, which the worker does not get; the worker's own answer is read here, whatever its form.
_OF_THE_BODY = frozenset({b"content-length", b"content-encoding", b"content-type", b"accept", b"accept-encoding"})


class Asked(NamedTuple):
    """A request as it was read, and what the worker is asked."""

    call: BufferedCall
    admission: CaptureAdmission
    upstream: Upstream
    content: bytes
    headers: Headers


class Given(NamedTuple):
    """A worker's answer.

    Attributes:
        commit: its word on the tokens.
        body: all that the client gets: the events of a stream, or one whole body.
        response_id: of the client's answer.
        message: of the worker's, with the backend's names of tools.
    """

    commit: Commit
    body: list[bytes]
    response_id: str
    message: dict[str, Any]


class WorkerCall:
    """One call.

    Args:
        asking: of the gateway; its upstreams are workers.
        ledger: of the staged calls before this one.
        dialect: of the client.
        rollout_id, call_id: what the tokens are staged as.
    """

    def __init__(self, asking: Asking, ledger: CallLedger, dialect: str, rollout_id: str, call_id: str) -> None:
        self._asking = asking
        self._ledger = ledger
        self._dialect = dialect
        self._rollout_id = rollout_id
        self._call_id = call_id

    async def read(self, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> Asked:
        """Read the client's request, and admit the call.

        Raises:
            GatewayFailure: it cannot be asked of a worker; nothing was spent.
        """
        return await _off_the_loop(self._read, body, to_upstream(headers))

    async def answer(self, asked: Asked) -> Given:
        """Ask, and make all of the client's answer, to its last byte.

        Raises:
            GatewayFailure: there is no answer, or none that can be given.
        """
        target = asked.upstream.target(WORKER_PATH, b"")
        response = await self._asking.ask(asked.upstream, "POST", target, asked.headers, asked.content)
        try:
            if response.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream":
                raise _failed(502, "worker_streamed", "The worker answered with a stream, which has no exact tokens.")
            body = await response.aread()
        except httpx.TimeoutException as error:
            raise failure(error, asked.upstream, 504, "upstream_timeout") from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise failure(error, asked.upstream, 502, "upstream_unreachable") from error
        finally:
            await response.aclose()
        return await _off_the_loop(self._given, asked, response.status_code, body)

    async def commit(self, asked: Asked, coords: CommitCoords, given: Given) -> CallRecord:
        """Keep the call in the ledger, for those that continue it."""
        return await _off_the_loop(self._row, asked, coords, given)

    # ------------------------------------------------------------------ off the loop

    def _read(self, body: bytes, headers: Headers) -> Asked:
        encoding = next((value.decode("latin-1") for name, value in headers if name == b"content-encoding"), "")
        if encoding:
            body = b"".join(Decoder(encoding).feed(body))
        try:
            request = json_text.loads(body)
        except ValueError:
            request = None
        if not isinstance(request, dict):
            raise _bad_request("The body of this request is no JSON object.")
        model = request.get("model")
        upstream = self._asking.of_model(model if isinstance(model, str) else None)
        try:
            call = BufferedCall(self._dialect, request, f"resp_{self._call_id}")
            admission = self._ledger.admit(self._rollout_id, self._call_id, call.messages)
            content = json_bytes(call.worker_request(admission))
        except ConversionError as error:
            raise _bad_request(f"This request cannot be said to the worker: {error}.") from error
        kept = [pair for pair in headers if pair[0] not in _OF_THE_BODY]
        return Asked(call, admission, upstream, content, [*kept, (b"content-type", b"application/json")])

    def _given(self, asked: Asked, status: int, body: bytes) -> Given:
        try:
            worker_answer = json_text.loads(body)
        except ValueError:
            worker_answer = None
        if status >= 400:
            raise GatewayFailure(status, "worker_error", _said(worker_answer), Outcome(True, status, "upstream"))
        if not isinstance(worker_answer, dict):
            raise _failed(502, "worker_answer_unreadable", "The worker's answer is no JSON object.", status)
        commit = commit_of(worker_answer, asked.admission)
        try:
            if not worker_answer.get("id"):
                worker_answer["id"] = f"chatcmpl-{self._call_id}"
            answer = asked.call.answer(worker_answer)
            made = asked.call.events(answer) if asked.call.stream else [json_bytes(answer)]
            return Given(commit, made, str(answer["id"]), worker_answer["choices"][0]["message"])
        except Exception as error:  # whatever it is, the client's answer cannot be made
            logger.warning("otel-gym gateway: the answer of call %r cannot be given: %r", self._call_id, error)
            raise _failed(502, "conversion_failed", CANNOT_BE_GIVEN, status) from error

    def _row(self, asked: Asked, coords: CommitCoords, given: Given) -> CallRecord:
        return self._ledger.commit(
            asked.admission,
            coords,
            response_id=given.response_id,
            messages=asked.call.messages,
            answer=given.message,
        )


async def _off_the_loop(function: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def _bad_request(message: str) -> GatewayFailure:
    return GatewayFailure(400, "invalid_request", message, Outcome(False, None, "local", "invalid_request"))


def _failed(status: int, code: str, message: str, upstream_status: int | None = None) -> GatewayFailure:
    return GatewayFailure(status, code, message, Outcome(True, upstream_status, "local", code))


def _said(worker_answer: Any) -> str:
    """The message of a worker's error; of anything else, that there was one."""
    error = worker_answer.get("error", worker_answer) if isinstance(worker_answer, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) and message else "The worker answered with an error."
