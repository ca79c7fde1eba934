"""A receiver of OTLP over HTTP, as a child process, well or at fault: refused, hanging, resetting, 503, killed, slow.

python -m benchmarks.receiver [FAULT [PORT]]
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SECONDS_BETWEEN_LIVES = 0.2
LOOPBACK = "127.0.0.1"


class Handler(BaseHTTPRequestHandler):
    """Takes what comes and answers that it has it; keeps connections open, as collectors do."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Read and forget."""
        self.read()
        self.answer(200, ("content-type", "application/x-protobuf"))

    def read(self, share: int = 1) -> bytes:
        """One part in so many of the request."""
        return self.rfile.read(int(self.headers["content-length"]) // share)

    def answer(self, status: int, *headers: tuple[str, str]) -> None:
        """Without a body."""
        self.send_response(status)
        for name, value in (*headers, ("content-length", "0")):
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


class _Resetting(Handler):
    def do_POST(self) -> None:
        self.read(2)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()  # RST: there is no time to linger
        self.close_connection = True


class _Unavailable(Handler):
    def do_POST(self) -> None:
        self.read()
        self.answer(503, ("retry-after", "1"))


class _Killed(Handler):
    def do_POST(self) -> None:
        self.read(2)
        os.kill(os.getpid(), signal.SIGKILL)


class _Slow(Handler):
    def do_POST(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        request = ExportTraceServiceRequest.FromString(self.read())
        time.sleep(sum(len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans))
        self.answer(200, ("content-type", "application/x-protobuf"))


_HANDLERS: dict[str, type[Handler]] = {
    "well": Handler,
    "resetting": _Resetting,
    "503": _Unavailable,
    "killed": _Killed,
    "slow": _Slow,
}
FAULTS = ("refused", "hanging", "resetting", "503", "killed", "slow")
"""Nobody listens; never answers; resets in the middle of a request; 503 with Retry-After; is killed in the middle of
each request and started again; takes a span a second."""


@contextlib.contextmanager
def receiver(fault: str = "well", port: int = 0) -> Iterator[str]:
    """A receiver until the context ends; its URL, whose port may be taken again then."""
    if fault in ("refused", "hanging"):
        with socket.socket() as silent:  # bound, so that nobody else gets the port
            silent.bind((LOOPBACK, port))
            if fault == "hanging":
                silent.listen()  # connections wait in its backlog for ever
            yield f"http://{LOOPBACK}:{silent.getsockname()[1]}"
        return
    command = [sys.executable, "-m", "benchmarks.receiver", fault, str(port)]
    root = Path(__file__).resolve().parent.parent
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=root) as child:
        try:
            assert child.stdout is not None
            yield f"http://{LOOPBACK}:{int(child.stdout.readline())}"
        finally:
            child.terminate()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A sender that gave up is no fault of the receiver."""


def main(fault: str = "well", port: str = "0") -> None:
    """The child: listen and say where."""
    with _Server((LOOPBACK, int(port)), _HANDLERS[fault]) as server:
        print(server.server_address[1], flush=True)
        if fault != "killed":
            server.serve_forever()
        address = server.server_address
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    while True:
        _live(address[1])
        time.sleep(SECONDS_BETWEEN_LIVES)


def _live(port: int) -> None:
    """Be a receiver in a fork until it is killed."""
    life = os.fork()
    if life == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with _Server((LOOPBACK, port), _Killed) as server:
            server.serve_forever()
    try:
        os.waitpid(life, 0)
    except SystemExit:
        os.kill(life, signal.SIGKILL)
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])
