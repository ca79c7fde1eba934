"""OTLP receivers in this process that keep every byte they get, and fail as they are told: over HTTP and over gRPC.

with http_receiver() as receiver:
    ...                                  # an exporter sends to receiver.endpoint
    spans = receiver.wait_for(3)
    receiver.fault = Fault.UNAVAILABLE   # from the next request on; None: well again
"""

from __future__ import annotations

import contextlib
import enum
import gzip
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

PATIENCE_S = 30.0
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
MOST_OF_GRPC = 4 * 1024 * 1024  # bytes of a message that gRPC takes
ALL_TAKEN: bytes = ExportTraceServiceResponse().SerializeToString()
Protocol = Literal["http", "grpc"]


class Fault(enum.Enum):
    """What a receiver does instead of taking a request."""

    HANG = "reads the request and never answers, until the fault is taken away"
    RESET = "resets the connection in the middle of the request (over gRPC: ends the call as UNAVAILABLE)"
    UNAVAILABLE = "503 with Retry-After: 1 (over gRPC: UNAVAILABLE)"
    TOO_LARGE = "413 (over gRPC: RESOURCE_EXHAUSTED)"
    SLOW = "takes it, a second for each span"
    DRIPPING = "503 a byte at a time, never to the end of its headers (over gRPC: no answer)"
    ENDLESS = "503 with a body that never ends (over gRPC: a message larger than gRPC's own limit)"


@dataclass(frozen=True)
class Request:
    """One request as it came.

    Attributes:
        headers: name and value of each, over gRPC the metadata; names in lower case.
        wire: the body before its content encoding was undone; over gRPC the message.
        body: the body without it.
        taken: whether the sender was told that all is well.
    """

    headers: Sequence[tuple[str, str | bytes]]
    wire: bytes
    body: bytes
    taken: bool

    @property
    def message(self) -> ExportTraceServiceRequest:
        """The body, parsed."""
        message: ExportTraceServiceRequest = ExportTraceServiceRequest.FromString(self.body)
        return message

    @property
    def spans(self) -> list[Span]:
        """The spans in it."""
        return [
            span for resource in self.message.resource_spans for scope in resource.scope_spans for span in scope.spans
        ]

    def everything(self) -> bytes:
        """Each byte that it brought: names and values of headers, the body before and after decoding."""
        words = [word if isinstance(word, bytes) else word.encode() for header in self.headers for word in header]
        return b"\n".join([*words, self.wire, self.body])


class Receiver:
    """What both receivers have.

    Attributes:
        protocol: `http` (protobuf) or `grpc`.
        port: of 127.0.0.1, where it listens.
        fault: what it does with requests from now on; None: it takes them.
        key: what `x-api-key` has to say, over HTTP; None: anything.
    """

    def __init__(self, protocol: Protocol, fault: Fault | None, key: str | None = None) -> None:
        self.protocol: Protocol = protocol
        self.key = key
        self.port = 0
        self._fault = fault
        self._requests: list[Request] = []
        self._changed = threading.Condition()
        self._closed = False

    @property
    def endpoint(self) -> str:
        """URL for an exporter; over HTTP without `/v1/traces`."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def exporter_protocol(self) -> str:
        """The value of `OTEL_EXPORTER_OTLP_PROTOCOL` that fits."""
        return "http/protobuf" if self.protocol == "http" else "grpc"

    @property
    def fault(self) -> Fault | None:
        """What it does with requests instead of taking them."""
        return self._fault

    @fault.setter
    def fault(self, fault: Fault | None) -> None:
        with self._changed:
            self._fault = fault
            self._changed.notify_all()

    @property
    def requests(self) -> list[Request]:
        """All requests so far, those that were not taken too."""
        with self._changed:
            return list(self._requests)

    @property
    def spans(self) -> list[Span]:
        """The spans of all requests that were taken, in the order of arrival."""
        return [span for request in self.requests if request.taken for span in request.spans]

    def wait_for(self, count: int) -> list[Span]:
        """The spans, as soon as so many were taken.

        Raises:
            TimeoutError: they were fewer after 30 s.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.spans) >= count, PATIENCE_S):
                raise TimeoutError(f"{len(self.spans)} spans, not {count}, within {PATIENCE_S:g} s")
        return self.spans

    def wait_for_requests(self, count: int) -> list[Request]:
        """The requests, as soon as there were so many, taken or not.

        Raises:
            TimeoutError: they were fewer after 30 s.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._requests) >= count, PATIENCE_S):
                raise TimeoutError(f"{len(self._requests)} requests, not {count}, within {PATIENCE_S:g} s")
        return self.requests

    def keep(self, request: Request) -> None:
        """Record a request."""
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()

    def has(self, fault: Fault) -> bool:
        """Whether it has this fault, and is not closed."""
        return self._fault is fault and not self._closed

    def wait_out(self, fault: Fault) -> None:
        """Return when the receiver has no longer this fault, or is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._fault is not fault)

    def pause(self, seconds: float) -> None:
        """Sleep, but not beyond the end of the receiver."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed, seconds)

    def close(self) -> None:
        """Let go of all that hangs."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def plain(fields: Sequence[KeyValue]) -> dict[str, Any]:
    """OTLP attributes as a mapping of plain values."""
    return {field.key: _plain(field.value) for field in fields}


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return plain(value.kvlist_value.values)
    return None if kind is None else getattr(value, kind)


@contextlib.contextmanager
def receiver_running(protocol: Protocol, *, port: int = 0, fault: Fault | None = None) -> Iterator[Receiver]:
    """A receiver for this protocol until the context ends.

    Args:
        protocol: `http` or `grpc`.
        port: where it listens; 0: a free one.
        fault: what is wrong with it from the start.
    """
    with (http_receiver if protocol == "http" else grpc_receiver)(port=port, fault=fault) as receiver:
        yield receiver


@contextlib.contextmanager
def http_receiver(*, port: int = 0, fault: Fault | None = None, key: str | None = None) -> Iterator[Receiver]:
    """A receiver of protobuf over HTTP, at `/v1/traces`; one with a key says 401 to what has another `x-api-key`."""
    receiver = Receiver("http", fault, key)

    class Handler(_Handler):
        def do_POST(self) -> None:
            self.receive(receiver)

    with _Server(("127.0.0.1", port), Handler) as server:
        receiver.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="otlp receiver")
        thread.start()
        try:
            yield receiver
        finally:
            receiver.close()
            server.shutdown()
            server.hang_up()
            thread.join()


class _Server(ThreadingHTTPServer):
    """Ends with all its connections: a sender that keeps one open finds nobody there any more."""

    def __init__(self, *args: Any) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that has gone is no fault of the receiver."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, *_: object) -> None:
        """Nothing: the requests are kept."""

    def receive(self, receiver: Receiver) -> None:
        fault = receiver.fault
        length = int(self.headers["content-length"])
        if fault is Fault.RESET:
            self.rfile.read(length // 2)
            receiver.keep(Request(self._headers(), b"", b"", taken=False))
            # With no time to linger, closing sends RST instead of FIN.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
            return
        wire = self.rfile.read(length)
        if receiver.key not in (None, self.headers["x-api-key"]):
            receiver.keep(Request(self._headers(), wire, self._decoded(wire), taken=False))
            self._answer(401, {}, b"")
            return
        if fault is Fault.HANG:
            receiver.keep(Request(self._headers(), wire, self._decoded(wire), taken=False))
            receiver.wait_out(fault)
            self.close_connection = True
            return
        request = Request(self._headers(), wire, self._decoded(wire), taken=fault in (None, Fault.SLOW))
        if fault is Fault.SLOW:
            receiver.pause(len(request.spans))
        receiver.keep(request)
        if fault in (Fault.DRIPPING, Fault.ENDLESS):
            self.close_connection = True
            self._answer_without_end(receiver, fault)
        elif fault is Fault.UNAVAILABLE:
            self._answer(503, {"retry-after": "1"}, b"")
        elif fault is Fault.TOO_LARGE:
            self._answer(413, {}, b"")
        else:
            self._answer(200, {"content-type": "application/x-protobuf"}, ALL_TAKEN)

    def _answer_without_end(self, receiver: Receiver, fault: Fault) -> None:
        endless = fault is Fault.ENDLESS
        self.wfile.write(b"HTTP/1.1 503 Unavailable\r\n" + (b"\r\n" if endless else b"x: "))
        while receiver.has(fault):
            self.wfile.write(b"x" * (65_536 if endless else 1))
            if not endless:
                receiver.pause(0.05)

    def _headers(self) -> list[tuple[str, str | bytes]]:
        return [(":path", self.path), *((name.lower(), value) for name, value in self.headers.items())]

    def _decoded(self, wire: bytes) -> bytes:
        encoding = self.headers.get("content-encoding", "identity")
        decoders: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}
        return decoders[encoding](wire) if encoding != "identity" else wire

    def _answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def grpc_receiver(*, port: int = 0, fault: Fault | None = None) -> Iterator[Receiver]:
    """A receiver over gRPC, with gRPC's own limit of 4 MiB a message."""
    receiver = Receiver("grpc", fault)
    server = grpc.server(ThreadPoolExecutor(max_workers=8, thread_name_prefix="otlp receiver"))
    method = grpc.unary_unary_rpc_method_handler(_export(receiver))  # bytes in, bytes out
    service, _, name = EXPORT[1:].partition("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: method}),))
    receiver.port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield receiver
    finally:
        receiver.close()
        server.stop(grace=1).wait()


def _export(receiver: Receiver) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    def export(wire: bytes, context: grpc.ServicerContext) -> bytes:
        fault = receiver.fault
        headers = [(item.key, item.value) for item in context.invocation_metadata()]
        request = Request(headers, wire, wire, taken=fault in (None, Fault.SLOW))
        if fault is Fault.SLOW:
            receiver.pause(len(request.spans))
        receiver.keep(request)
        if fault in (Fault.HANG, Fault.DRIPPING):
            receiver.wait_out(fault)
        if fault is Fault.ENDLESS:
            return bytes(MOST_OF_GRPC + 1)
        if fault is Fault.TOO_LARGE:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"received message larger than max ({len(wire)} vs. 1)")
        elif not request.taken:
            context.abort(grpc.StatusCode.UNAVAILABLE, fault.value if fault else "")
        return ALL_TAKEN

    return export
