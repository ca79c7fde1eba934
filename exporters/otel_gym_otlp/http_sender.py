"""OTLP over HTTP, through the stock exporter, without its retries.

The stock exporter knows from the standard variables where to send, with which headers, certificates, compression and
timeout. It gets a session of ours: that puts our bytes in the place of the exporter's, one span of no interest, and
tells what became of the request instead of letting the exporter sleep and try again. Only its public interface is used.
"""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, TraceFlags

from otel_gym_otlp import stock
from otel_gym_otlp.http_session import bounded_session_class
from otel_gym_otlp.otlp_sender import OtlpSender
from otel_gym_otlp.outcome import SENT, Fate, Outcome

# What the exporter itself puts on; anything else stands there because a variable meant for another destination says so.
_OWN_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "user-agent",
    }
)


class HttpSender(OtlpSender):
    """Posts to one URL.

    Args:
        endpoint: full URL; None: as the standard variables say.
        headers: to send; None: those of the standard variables.
    """

    protocol = "http/protobuf"
    max_span_bytes = 16_000_000  # collectors take 20 MiB a body

    def __init__(self, endpoint: str | None, headers: Mapping[str, str] | None, by_default: Mapping[str, str]) -> None:
        super().__init__(by_default)
        self._endpoint = endpoint
        self._headers = headers
        self._session: Any = None

    def load_modules(self) -> Any:
        module = stock.otlp_module(self.protocol)
        import_module("requests")
        import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
        return module

    def open(self) -> Any:
        module = self.load_modules()
        for name in (module.__name__, "opentelemetry.exporter.otlp.common.http"):
            stock.quiet(name)
        self._session = _session_class()(None if self._headers is None else {name.lower() for name in self._headers})
        headers = None if self._headers is None else dict(self._headers)
        return module.OTLPSpanExporter(endpoint=self._endpoint, headers=headers, session=self._session)

    def post(self, exporter: Any, request: bytes) -> Outcome:
        session = self._session
        session.payload, session.outcome = request, None
        try:
            exporter.export((_NO_INTEREST,))
        except Exception as exc:  # noqa: BLE001  it ends by our own exception, or is at fault itself
            if session.outcome is None:  # older exporters let the client's own exceptions through
                reason = _NO_ADDRESS if _says_no_address(exc) else f"{type(exc).__name__} in the exporter"
                return Outcome(Fate.UNUSABLE, reason)
        finally:
            session.payload = b""
        return session.outcome or Outcome(Fate.UNUSABLE, f"nothing could be sent: {_NO_ADDRESS}")


_NO_ADDRESS = "the endpoint is no http:// or https:// address"


class _NotTakenError(Exception):
    """Ends the stock exporter's attempt: no error of an HTTP client, which it would try again."""


def _says_no_address(error: Exception) -> bool:
    from requests.exceptions import InvalidSchema, InvalidURL, MissingSchema

    return isinstance(error, (InvalidSchema, InvalidURL, MissingSchema))


def _session_class() -> Any:
    import requests
    from urllib3.exceptions import NewConnectionError

    class Session(bounded_session_class()):  # type: ignore[misc]  # made when it is needed
        """Sends our bytes for the exporter's, and remembers what became of them."""

        def __init__(self, explicit_headers: set[str] | None) -> None:
            super().__init__()
            self.explicit_headers = explicit_headers
            self.payload = b""
            self.outcome: Outcome | None = None

        def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
            headers = request.headers
            if self.explicit_headers is not None:
                for name in [name for name in headers if name.lower() not in _OWN_HEADERS | self.explicit_headers]:
                    del headers[name]
            body = _compressed(self.payload, str(headers.get("Content-Encoding", "")))
            request.body = body
            headers["Content-Length"] = str(len(body))
            try:
                response: requests.Response = super().send(request, **kwargs)
            except Exception as exc:  # noqa: BLE001  whatever a client raises is a request that was not answered
                self.outcome = self._unanswered(exc)
                raise _NotTakenError from None
            self.outcome = judge(response.status_code, response.headers, self.beginning(response))
            if self.outcome.fate is not Fate.SENT:
                raise _NotTakenError
            return response

        @staticmethod
        def _unanswered(error: Exception) -> Outcome:
            if _says_no_address(error):
                return Outcome(Fate.UNUSABLE, _NO_ADDRESS)
            never_connected = isinstance(error, requests.exceptions.ConnectTimeout) or isinstance(
                getattr(error.args[0] if error.args else None, "reason", None), NewConnectionError
            )
            reason = "no connection" if never_connected else type(error).__name__
            return Outcome(Fate.AGAIN if never_connected else Fate.UNCERTAIN, reason)

    return Session


def judge(status: int, headers: Mapping[str, str], body: bytes) -> Outcome:
    """What an answer means. Source: the OTLP specification, "OTLP/HTTP Response"; 500 may be one span's fault."""
    reason = f"HTTP {status}"
    if 200 <= status < 300:
        return _kept(body)
    if status == 413:
        return Outcome(Fate.TOO_LARGE, reason)
    if status in (400, 422):
        return Outcome(Fate.BAD, reason)
    if status in (408, 429, 502, 503, 504):
        return Outcome(Fate.AGAIN, reason, _seconds(headers.get("Retry-After")))
    if status >= 500:
        return Outcome(Fate.UNCERTAIN, reason)
    return Outcome(Fate.UNUSABLE, reason)


def _kept(body: bytes) -> Outcome:
    """Receivers that keep only a part say so in the answer's body."""
    if not body or body[:1] == b"{":
        return SENT
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        rejected = ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans
    except Exception:  # noqa: BLE001  an answer in words: it was taken all the same
        return SENT
    return Outcome(Fate.SENT, "rejected by the receiver", rejected=rejected) if rejected > 0 else SENT


def _seconds(retry_after: str | None) -> float | None:
    if retry_after is None:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def _compressed(payload: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.compress(payload, compresslevel=6)
    return zlib.compress(payload) if encoding == "deflate" else payload


_NO_INTEREST = ReadableSpan(
    "-", SpanContext(1, 1, False, TraceFlags(1)), resource=Resource({}), start_time=0, end_time=0
)
