"""Many servers in one process: `python -m tests.servers.serve <capture directory>`.

One JSON line on stdout gives the port of each by its name; SIGTERM ends them all. Names: the server, with `-off` for
capture off, `-sdk` for the example model server; `pass`, `no-websockets` and `rooted` are uvicorn with those settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import hypercorn
import hypercorn.asyncio
import uvicorn

HttpName = Literal["h11", "httptools"]
UVICORN: tuple[HttpName, ...] = ("h11", "httptools")


class Uvicorn(uvicorn.Server):
    """One of several in its process: signals are the process's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Servers:
    """Servers that run together and end together."""

    def __init__(self) -> None:
        self.ports: dict[str, int] = {}
        self._running: list[Any] = []
        self._uvicorns: list[Uvicorn] = []
        self._ended = asyncio.Event()

    def uvicorn(self, name: str, app: Any, http: HttpName = "h11", **settings: Any) -> None:
        config = uvicorn.Config(
            app, http=http, log_level="warning", lifespan="on", timeout_graceful_shutdown=2, **settings
        )
        server = Uvicorn(config)
        self._uvicorns.append(server)
        self._running.append(server.serve(sockets=[self._listen(name)]))

    def hypercorn(self, name: str, app: Any) -> None:
        config = hypercorn.Config()
        config.bind = [f"fd://{self._listen(name).detach()}"]
        config.graceful_timeout = config.shutdown_timeout = 2
        self._running.append(hypercorn.asyncio.serve(app, config, shutdown_trigger=self._ended.wait))

    async def run(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._end)
        print(json.dumps(self.ports), flush=True)
        await asyncio.gather(*self._running)

    def _listen(self, name: str) -> socket.socket:
        listening = socket.create_server(("127.0.0.1", 0))
        self.ports[name] = listening.getsockname()[1]
        return listening

    def _end(self) -> None:
        self._ended.set()
        for server in self._uvicorns:
            server.should_exit = True


async def main(directory: Path) -> None:
    os.environ["OTEL_GYM_MODEL_CALL_CAPTURE_DIR"] = str(directory)  # the environment alone switches capture on
    from examples.model_server import app as example
    from otel_gym import CaptureMiddleware, Settings
    from tests.servers.application import application

    on, off = Settings(), Settings(observability_enabled=False)
    servers = Servers()
    for http in UVICORN:
        servers.uvicorn(http, CaptureMiddleware(application, on), http)
        servers.uvicorn(f"{http}-off", CaptureMiddleware(application, off), http)
        servers.uvicorn(f"{http}-sdk", example, http)
    servers.hypercorn("hypercorn", CaptureMiddleware(application, on))
    servers.hypercorn("hypercorn-off", CaptureMiddleware(application, off))
    servers.hypercorn("hypercorn-sdk", example)
    servers.uvicorn("pass", CaptureMiddleware(application, Settings(websockets="pass")))
    servers.uvicorn("no-websockets", CaptureMiddleware(application, on), ws="none")
    servers.uvicorn("rooted", CaptureMiddleware(application, on), "httptools", root_path="/proxy")
    await servers.run()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
