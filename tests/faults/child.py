"""A process whose disk, rights and limits a test may spoil: `python -m tests.faults.child <directory> <settings>`.

It serves calls in process and takes commands as JSON lines on stdin; the answers, each with the command's number, come
as JSON lines on stdout. At the end of stdin it exits as any program does. The event loop has a thread of its own, so
that a fork finds everything in full swing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from otel_gym import CaptureMiddleware, Settings
from otel_gym.testing import Exchange, Headers
from tests.faults import model

NOBODY = 65534


class Errors(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


class Child:
    """What the commands do; each is a method, its arguments those of the command."""

    def __init__(self, directory: Path, settings: dict[str, Any]) -> None:
        self.settings = Settings(observability_enabled=True, model_call_capture_dir=directory, **settings)
        self.app = CaptureMiddleware(model.model, self.settings)
        self.errors_seen = Errors()
        logging.getLogger().addHandler(self.errors_seen)

    async def _serve(self, rollout: str, **asked: Any) -> bool:
        body = model.request(**asked)
        async with Exchange(self.app, f"/ng-rollout/{rollout}/v1/chat/completions", body) as exchange:
            await exchange.rest()
        return b"".join(model.pieces(json.loads(body))) == exchange.body

    async def calls(self, calls: list[dict[str, Any]]) -> dict[str, Any]:
        """Serve calls all at once; whether every client got the model's bytes, and how long each waited."""
        waited: list[float] = []

        async def timed(call: dict[str, Any]) -> bool:
            started = time.monotonic()
            served = await self._serve(**call)
            waited.append(time.monotonic() - started)
            return served

        served = await asyncio.gather(*(timed(call) for call in calls))
        return {"served": all(served), "waited": max(waited, default=0.0)}

    async def abandoned(self, calls: list[dict[str, Any]]) -> None:
        """Serve calls whose clients leave at once, again and again cancelled, so that nobody waits for the record."""

        async def abandon(call: dict[str, Any]) -> None:
            task = asyncio.ensure_future(self._serve(**call))
            await asyncio.sleep(0.05)
            while not task.done():
                task.cancel()
                await asyncio.sleep(0)

        await asyncio.gather(*(abandon(call) for call in calls))

    async def post(self, rollout: str, body: int, encoding: str, data: str) -> bool:
        """A request of zeros or given bytes (hex), `body` zeros in front; whether the client got its answer."""
        headers: Headers = ((b"content-encoding", encoding.encode()),) if encoding else ()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            more = True
            while more:
                more = (await receive()).get("more_body", False)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})

        pieces = [bytes(1 << 20)] * (body >> 20) + [bytes.fromhex(data)]
        served = CaptureMiddleware(app, self.settings)
        async with Exchange(served, f"/ng-rollout/{rollout}/v1/chat/completions", pieces, headers=headers) as exchange:
            await exchange.rest()
        return exchange.body == b"{}"

    async def errors(self) -> list[str]:
        """What was logged as an error so far."""
        return self.errors_seen.messages

    async def limit(self, what: str, soft: int) -> None:
        """Set one of the process's limits; -1 for the most there is."""
        number = getattr(resource, what)
        _, hard = resource.getrlimit(number)
        resource.setrlimit(number, (hard if soft < 0 else soft, hard))

    async def become_nobody(self) -> None:
        """Give up root's rights, when there are any."""
        if os.getuid() == 0:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)

    async def memory(self) -> int:
        """The most memory that was in use, in bytes."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    async def descriptors(self) -> int:
        """How many descriptors are open."""
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    async def threads(self) -> int:
        """How many threads run."""
        return threading.active_count()

    async def close(self) -> None:
        """Drain, and give threads and handles back."""
        await self.app.aclose()

    async def shut_down(self) -> float:
        """End as a server does, by the lifespan; returns how long it took."""
        asked = iter(["lifespan.startup", "lifespan.shutdown"])

        async def receive() -> dict[str, Any]:
            return {"type": next(asked)}

        async def send(message: Any) -> None:
            pass

        started = time.monotonic()
        await self.app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
        return time.monotonic() - started

    def fork(self, calls: list[dict[str, Any]], closing: bool = False) -> int:
        """Fork; the child serves calls and exits.

        Returns its exit code: 0 when all clients got their bytes, 2 when it had its parent's capture files open. (One
        that the parent was `closing` at that moment may be.)
        """
        pid = os.fork()
        if pid == 0:
            if self._open_captures() and not closing:
                sys.exit(2)
            sys.exit(0 if asyncio.run(self.calls(calls))["served"] else 1)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def _open_captures(self) -> list[str]:
        links = []
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
            with contextlib.suppress(OSError):
                links.append(os.readlink(f"/proc/self/fd/{name}"))  # noqa: PTH115
        return [link for link in links if link.endswith(".capture.jsonl")]


def reply(number: int, **what: Any) -> None:
    """Straight to the descriptor: no buffer, and no lock that a fork could find held."""
    os.write(1, json.dumps({"number": number, **what}).encode() + b"\n")


def main(directory: Path, settings: dict[str, Any]) -> None:
    child = Child(directory, settings)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    async def run(number: int, command: Coroutine[Any, Any, Any]) -> None:
        try:
            reply(number, result=await command)
        except BaseException as error:
            reply(number, error=repr(error))
            raise

    reply(0, result=None)
    for line in sys.stdin:
        command = json.loads(line)
        number, name = command.pop("number"), command.pop("do")
        if name == "fork":
            reply(number, result=child.fork(**command))
        else:
            asyncio.run_coroutine_threadsafe(run(number, getattr(child, name)(**command)), loop)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
