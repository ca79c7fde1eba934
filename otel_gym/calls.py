"""One model call: facts set plainly while it passes, turned into evidence once, off the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from otel_gym.arrival import Arrival
from otel_gym.bodies import Body
from otel_gym.call_ids import new_call_id
from otel_gym.dialects.base import Assembly, Dialect, Terminal
from otel_gym.parentage import Ancestry
from otel_gym.sse import events
from otel_gym_jsonl import attributes as names
from otel_gym_jsonl import json_text
from otel_gym_jsonl.giving_way import give_way, pause_in

logger = logging.getLogger(__name__)

_NANOSECONDS = 1_000_000_000
_BY_STATUS = {408: "timeout", 504: "timeout", 429: "rate_limit", 401: "auth", 403: "auth", 404: "not_found"}
_BY_TERMINAL: dict[Terminal, str | None] = {"complete": None, "incomplete": "incomplete", "error": "upstream_error"}
_OUTCOME_TYPES: dict[str, type] = {
    "upstream_attempted": bool,
    "response_source": str,
    "upstream_status_code": int,
    "local_response_reason": str,
}
_NULLABLE = frozenset(_OUTCOME_TYPES) - {"upstream_attempted"}
_RESPONSE_SOURCES = ("upstream", "local")
CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"


_GONE = Body(0)


class Call:
    """What is known of one call. The edge sets the attributes; `evidence()` is called once, on another thread.

    Attributes:
        rollout_id: the checked id.
        dialect: which model API the path belongs to.
        model_call_id: 32 lower-case hex characters.
        model_server_name: name in `model_ref`, None for none.
        client_session_id: what the client declared, None when it did not, or not in one voice.
        request, response: the bodies.
        status: HTTP status that the application sent, None while it has not.
        is_stream: the response's media type is `text/event-stream`.
        ended: the last body message of the response has passed.
        terminal: how the stream ended, where the edge saw it (None elsewhere).
        error: what the application raised, None when it did not.
        outcome: the application's execution outcome as it left it in scope state.
        arrival: what the request said of itself; None where nobody tells of the call but its record.
        ancestry: where it stands among the spans of others; None without a mirror.
        request_object, response_object: as read or rebuilt, where they are told of; None where there is none.
        started_at, completed_at: wall clock, Unix seconds.
        latency_ms, latency_ttft_ms: monotonic, milliseconds with 2 decimals.
    """

    __slots__ = (
        "_started",
        "ancestry",
        "arrival",
        "client_session_id",
        "completed_at",
        "dialect",
        "ended",
        "error",
        "is_stream",
        "latency_ms",
        "latency_ttft_ms",
        "model_call_id",
        "model_server_name",
        "outcome",
        "request",
        "request_object",
        "response",
        "response_object",
        "rollout_id",
        "started_at",
        "status",
        "terminal",
    )

    def __init__(self, rollout_id: str, dialect: Dialect, body_limit: int, model_server_name: str | None) -> None:
        self.rollout_id = rollout_id
        self.dialect = dialect
        self.model_server_name = model_server_name
        self.model_call_id = new_call_id()
        self.client_session_id: str | None = None
        self.request = Body(body_limit)
        self.response = Body(body_limit)
        self.status: int | None = None
        self.is_stream = False
        self.ended = False
        self.terminal: Terminal | None = None
        self.error: BaseException | None = None
        self.outcome: Any = None
        self.arrival: Arrival | None = None
        self.ancestry: Ancestry | None = None
        self.request_object: dict[str, Any] | None = None
        self.response_object: dict[str, Any] | None = None
        self.latency_ttft_ms: float | None = None
        self.latency_ms = 0.0
        self.completed_at = 0.0
        self.started_at = time.time()
        self._started = time.perf_counter()

    def first_token(self) -> None:
        """The first piece of the answer passes now."""
        self.latency_ttft_ms = round((time.perf_counter() - self._started) * 1000, 2)

    def complete(self, error: BaseException | None = None) -> None:
        """The call is over now, by itself or by what the application raised."""
        self.error = error
        self.latency_ms = round((time.perf_counter() - self._started) * 1000, 2)
        self.completed_at = max(self.started_at, time.time())

    @property
    def body_missing(self) -> bool:
        """Whether a body was larger than what is kept; known for sure after `evidence()`."""
        return self.request.too_large or self.response.too_large

    @property
    def start_time_ns(self) -> int:
        """Start of the span."""
        return int(self.started_at * _NANOSECONDS)

    @property
    def end_time_ns(self) -> int:
        """End of the span."""
        return int(self.completed_at * _NANOSECONDS)

    # ------------------------------------------------------------------ off the event loop

    def lighten(self) -> None:
        """Give up what is of no use once the span has ended: many calls may wait until others are told of them."""
        self.request = self.response = _GONE
        self.request_object = self.response_object = None
        self.error = self.outcome = self.ancestry = None

    def evidence(self) -> dict[str, Any]:
        """The attributes of the evidence span. Reads and gives up the bodies: call it once."""
        out: dict[str, Any] = {
            names.ROLLOUT_ID: self.rollout_id,
            names.MODEL_CALL_ID: self.model_call_id,
            names.DIALECT: self.dialect.name,
            names.STARTED_AT: self.started_at,
            names.COMPLETED_AT: self.completed_at,
            names.LATENCY_MS: self.latency_ms,
        }
        if self.model_server_name is not None:
            out[names.MODEL_REF_NAME] = self.model_server_name
        if self.latency_ttft_ms is not None:
            out[names.LATENCY_TTFT_MS] = self.latency_ttft_ms
        if self.client_session_id is not None:
            out[names.CLIENT_SESSION_ID] = self.client_session_id
        self._read_request(out)
        give_way(self.request.size)
        status, category = self._read_response(out)
        if self._read_outcome(out) == CONTEXT_LENGTH_EXCEEDED:
            category = CONTEXT_LENGTH_EXCEEDED
        if status is not None:
            out[names.STATUS_CODE] = int(status)  # frameworks hand on members of HTTPStatus too
        if category is not None:
            out[names.ERROR_CATEGORY] = category
        return out

    def _read_request(self, out: dict[str, Any]) -> None:
        value, stored, text = json_text.stored_object(self.request.take())
        if stored is not None:
            out[names.REQUEST] = stored
            if self.arrival is not None:
                self.request_object = value
        elif text:
            out[names.REQUEST_RAW] = text

    def _read_response(self, out: dict[str, Any]) -> tuple[int | None, str | None]:
        """Put the response in; returns status and error category."""
        had_body = bool(self.response)
        body = self.response.take()
        if self.is_stream:
            whole, category = self._read_stream(body, out)
        else:
            whole, category = self._read_object(body, out)
        if self.response.too_large and category is None:
            category = "capture_parse_error"
        status = self.status
        if self.error is not None and not whole:
            if status is None:
                status = _carried_status(self.error)
            category = _by_exception(self.error)
            if not body and not had_body and (carried := _carried_body(self.error)):
                out[names.RESPONSE_RAW] = json_text.as_text(carried)
        elif self.error is None and status is None and not had_body:
            category = "exception"
        if status is not None and status >= 400:
            category = _by_status(status)
        return status, category

    def _read_stream(self, body: bytes, out: dict[str, Any]) -> tuple[bool, str | None]:
        """A stream is whole when its terminal event has passed."""
        if body:
            out[names.RESPONSE_RAW] = json_text.as_text(body)
            give_way(len(body))
        assembly = self.dialect.assemble(events(body, pause_in(len(body)))) if body else Assembly()
        terminal = assembly.terminal or self.terminal
        category = "stream_truncated" if terminal is None else _BY_TERMINAL[terminal]
        if assembly.unreadable:
            category = "capture_parse_error"
        if assembly.response is None:  # a clean end of nothing that could be read
            category = category or "capture_parse_error"
        else:
            give_way(len(body))
            if self.arrival is not None:
                self.response_object = assembly.response
            try:
                out[names.RESPONSE] = json_text.dumps_read(assembly.response, len(body))
            except ValueError:  # the text is kept; only the rebuilt object cannot be (divergence 1)
                category = category or "capture_parse_error"
        return terminal is not None, category

    def _read_object(self, body: bytes, out: dict[str, Any]) -> tuple[bool, str | None]:
        """Any other response is whole when its last message has passed, or when it is an object all the same."""
        if not body:
            return self.ended, None
        value, stored, text = json_text.stored_object(body)
        if stored is None:
            out[names.RESPONSE_RAW] = text
            return self.ended, "capture_parse_error"
        out[names.RESPONSE] = stored
        if self.arrival is not None:
            self.response_object = value
        return True, None

    def _read_outcome(self, out: dict[str, Any]) -> str | None:
        """Put the execution outcome in, each key only with its type; returns the reason of a local response."""
        if self.outcome is None:
            return None
        if not isinstance(self.outcome, Mapping):
            logger.warning(
                "otel-gym: the execution outcome in scope state is %r: left out, it should be a mapping",
                type(self.outcome).__name__,
            )
            return None
        nulls = []
        odd = []
        for key, kind in _OUTCOME_TYPES.items():
            value = self.outcome.get(key, _MISSING)
            if value is None and key in _NULLABLE:
                nulls.append(key)
                continue
            plain = _plain(value, kind)
            if plain is None or (key == "response_source" and plain not in _RESPONSE_SOURCES) or not _storable(plain):
                odd.append(key)
            else:
                out[names.PREFIX + key] = plain
        if nulls:
            out[names.NULL_KEYS] = nulls
        if odd:
            logger.warning("otel-gym: execution outcome in scope state: %s left out, missing or odd", ", ".join(odd))
        reason = out.get(names.LOCAL_RESPONSE_REASON)
        return reason if isinstance(reason, str) else None


_MISSING = object()


def _plain(value: object, kind: type) -> object:
    """A value of the type, without what a subclass makes of it: `HTTPStatus.OK` is 200. None where it is of another."""
    if type(value) is kind:
        return value
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        return int.__int__(value)
    return str.__str__(value) if kind is str and isinstance(value, str) else None


def _storable(value: object) -> bool:
    """Whether a record can hold it: an integer of 64 bits, text without lone surrogates."""
    try:
        json_text.dumps(value)
    except ValueError:
        return False
    return True


def _by_status(status: int) -> str:
    return _BY_STATUS.get(status) or ("upstream_error" if status >= 500 else "client_error")


def _by_exception(error: BaseException) -> str:
    kind = type(error).__name__.lower()
    if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
        return "cancelled"
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)) or "timeout" in kind:
        return "timeout"
    return "connection" if "conn" in kind else "exception"


def _carried_status(error: BaseException) -> int | None:
    """The HTTP status that an exception of an HTTP client carries."""
    for holder, attribute in ((error, "status"), (error, "status_code"), (_carried(error, "response"), "status_code")):
        value = _carried(holder, attribute)
        if isinstance(value, int) and not isinstance(value, bool) and _storable(value):
            return value
    return None


def _carried_body(error: BaseException) -> bytes:
    """The body that an exception of an HTTP client carries."""
    response = _carried(error, "response")
    for holder, attribute in ((error, "response_content"), (response, "content"), (response, "text")):
        value = _carried(holder, attribute)
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogatepass")
        if isinstance(value, (bytes, bytearray)) and value:
            return bytes(value)
    return b""


def _carried(holder: object, attribute: str) -> object:
    try:
        return getattr(holder, attribute, None)
    except Exception:  # noqa: BLE001  clients raise from such properties, for instance on an answer that was not read
        return None
