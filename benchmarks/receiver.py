"""A receiver of OTLP over HTTP, as a child process: takes what comes and answers that it has it.

python -m benchmarks.receiver
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    """Keeps connections open, as collectors do."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Read and forget."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def receiver() -> Iterator[str]:
    """A receiver until the context ends; its URL."""
    command = [sys.executable, "-m", "benchmarks.receiver"]
    root = Path(__file__).resolve().parent.parent
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=root) as child:
        try:
            assert child.stdout is not None
            yield f"http://127.0.0.1:{int(child.stdout.readline())}"
        finally:
            child.terminate()


def main() -> None:
    """The child: listen on a free port and say which."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
