"""OTLP over gRPC, through the stub of the stock exporter, without its retries.

The stock exporter sleeps and tries again what can never go (a message above the receiver's 4 MiB is RESOURCE_EXHAUSTED
for ever), so its `export` is not used; its client, metadata and timeout are, made from the standard variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from otel_gym_otlp import stock
from otel_gym_otlp.otlp_sender import OtlpSender
from otel_gym_otlp.outcome import SENT, Fate, Outcome

_AGAIN = frozenset({"ABORTED", "CANCELLED", "DATA_LOSS"})
_BAD = frozenset({"INVALID_ARGUMENT", "OUT_OF_RANGE"})
_UNUSABLE = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED", "NOT_FOUND"})
# The code is the same for a message above the limit and for a quota; gRPC says "Received message larger than max".
_SAYS_TOO_LARGE = re.compile(r"larger than|too (large|big|long)|message size|max\w* size", re.IGNORECASE)
_OF_THE_ANSWER = "CLIENT: "  # who says so is our own side of gRPC: what came is larger than it takes
_RETRY_INFO = "google.rpc.retryinfo-bin"
_STATUS_DETAILS = "grpc-status-details-bin"


class GrpcSender(OtlpSender):
    """Calls `TraceService/Export` at one endpoint.

    Args:
        endpoint: `http://host:port`, or `https://` for TLS; None: as the standard variables say.
        headers: metadata to send; None: those of the standard variables.
    """

    protocol = "grpc"
    max_span_bytes = 4_000_000  # receivers take messages of 4 MiB

    def __init__(self, endpoint: str | None, headers: Mapping[str, str] | None, by_default: Mapping[str, str]) -> None:
        super().__init__(by_default)
        self._endpoint = endpoint
        self._headers = headers
        self._message: Any = None

    def load_modules(self) -> Any:
        module = stock.otlp_module(self.protocol)
        for name in ("google.rpc.error_details_pb2", "google.rpc.status_pb2"):
            import_module(name)
        messages = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
        self._message = messages.ExportTraceServiceRequest
        return module

    def open(self) -> Any:
        module = self.load_modules()
        stock.quiet("opentelemetry.exporter.otlp.proto.grpc.exporter")
        headers = (
            None if self._headers is None else tuple((name.lower(), value) for name, value in self._headers.items())
        )
        return module.OTLPSpanExporter(endpoint=self._endpoint, headers=headers)

    def post(self, exporter: Any, request: bytes) -> Outcome:
        import grpc

        metadata = exporter._headers
        if self._headers is not None:  # not those of a variable that is meant for another destination
            metadata = tuple((name.lower(), value) for name, value in self._headers.items())
        try:
            response = exporter._client.Export(
                request=self._message.FromString(request), metadata=metadata, timeout=exporter._timeout
            )
        except grpc.RpcError as error:
            outcome = judge(error)
            if outcome.fate is Fate.UNCERTAIN:
                self.close()  # a channel that lost its peer waits up to two minutes; a new one looks now
            return outcome
        rejected = response.partial_success.rejected_spans
        return Outcome(Fate.SENT, "rejected by the receiver", rejected=rejected) if rejected > 0 else SENT


def judge(error: Any) -> Outcome:
    """What a failed call means. Source: the OTLP specification, "OTLP/gRPC Response"."""
    code = error.code().name
    if code == "RESOURCE_EXHAUSTED":
        details = error.details() or ""
        if _OF_THE_ANSWER in details:
            return Outcome(Fate.UNCERTAIN, "an answer that is too large")
        if _SAYS_TOO_LARGE.search(details):
            return Outcome(Fate.TOO_LARGE, code)
        after = _retry_delay(error)
        return Outcome(Fate.UNCERTAIN, code) if after is None else Outcome(Fate.AGAIN, code, after)
    if code in _BAD:
        return Outcome(Fate.BAD, code)
    if code in _UNUSABLE:
        return Outcome(Fate.UNUSABLE, code)
    if code in _AGAIN:
        return Outcome(Fate.AGAIN, code, _retry_delay(error))
    after = _retry_delay(error)
    return Outcome(Fate.UNCERTAIN, code, after)


def _retry_delay(error: Any) -> float | None:
    """Seconds of the answer's `RetryInfo`, which receivers send in either of two ways."""
    from google.rpc.error_details_pb2 import RetryInfo
    from google.rpc.status_pb2 import Status

    metadata = dict(error.trailing_metadata() or ())
    info = RetryInfo()
    try:
        if _RETRY_INFO in metadata:
            info.ParseFromString(metadata[_RETRY_INFO])
            return float(info.retry_delay.ToTimedelta().total_seconds())
        if _STATUS_DETAILS in metadata:
            for detail in Status.FromString(metadata[_STATUS_DETAILS]).details:
                if detail.Unpack(info):
                    return float(info.retry_delay.ToTimedelta().total_seconds())
    except Exception:  # noqa: BLE001  metadata that is none: the receiver says nothing about time
        return None
    return None
