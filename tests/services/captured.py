"""A captured model server in a process of its own, with a destination for its spans."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from otel_gym_jsonl import CaptureStore
from tests.servers.processes import listening, wait_until

PLAYED = "tests.services.model_server:app"
PATHS = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages"}
BODIES: dict[str, dict[str, Any]] = {
    "responses": {"model": "m", "input": "hi"},
    "chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    "messages": {"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": "hi"}]},
}


class CapturedServer:
    """A captured server, running; `call`, `resident_kb` and `kill` are for the one of `tests.services.model_server`.

    Attributes:
        port: of 127.0.0.1, where it listens.
        store: the records that it has written.
        log: what it says.
        printed: what it prints to its standard output.
    """

    def __init__(self, port: int, captures: Path, log: Path, printed: Path) -> None:
        self.port = port
        self.store = CaptureStore(captures)
        self.log = log
        self.printed = printed
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)

    def url(self, rollout_id: str) -> str:
        """Base URL of a rollout, without the version of the API."""
        return f"http://127.0.0.1:{self.port}/ng-rollout/{rollout_id}"

    @property
    def run_id(self) -> str:
        """The seed of the ids of its traces."""
        return (self.store.directory / ".otel-gym-run-id").read_text("ascii").strip()

    def call(
        self,
        rollout_id: str,
        dialect: str = "chat",
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        **body: Any,
    ) -> httpx.Response:
        """One call of the rollout, to its end; `body` is what its request has beyond the least."""
        path = f"/ng-rollout/{rollout_id}{PATHS[dialect]}"
        return self._client.post(path, json={**BODIES[dialect], **body}, headers=headers, params=query)

    def record(self, rollout_id: str, number: int = -1) -> dict[str, Any]:
        """One record of the rollout, the last by default."""
        record: dict[str, Any] = self.store.read(rollout_id)[number]
        return record

    def line(self, rollout_id: str, number: int = -1) -> bytes:
        """The same as the line that is on disk, its newline included."""
        return self.store.path_for(rollout_id).read_bytes().splitlines(keepends=True)[number]

    def trace_id(self, rollout_id: str) -> str:
        """The trace of a rollout, as the specification of traces derives it."""
        return self._derived(rollout_id)[:16].hex()

    def root_span_id(self, rollout_id: str) -> str:
        """The span of the rollout itself, which a collection sends."""
        return self._derived(rollout_id)[16:24].hex()

    def resident_kb(self) -> int:
        """Memory that the server has now."""
        kilobytes: int = self._client.get("/").json()["rss_kb"]
        return kilobytes

    def kill(self) -> None:
        """End the server without a word to it."""
        os.kill(self._client.get("/").json()["pid"], signal.SIGKILL)

    def logged(self) -> str:
        """All that the server has said so far."""
        return self.log.read_text(errors="replace")

    def wait_for_log(self, words: str) -> None:
        """Return when the server has said so."""
        wait_until(lambda: words in self.logged(), 30)

    def close(self) -> None:
        """End the client's connections."""
        self._client.close()

    def _derived(self, rollout_id: str) -> bytes:
        return hashlib.sha256(b"\0".join([b"otel-gym/v1", self.run_id.encode(), rollout_id.encode()])).digest()


def span_id(record: Mapping[str, Any]) -> str:
    """The span of a call, by its record."""
    return str(record["model_call_id"])[:16]


@contextlib.contextmanager
def captured_server(directory: Path, app: str = PLAYED, **variables: str) -> Iterator[CapturedServer]:
    """Run the server until the context ends.

    Args:
        directory: an existing folder for its captures and its log.
        app: what uvicorn serves.
        variables: its environment beyond ours, such as `OTEL_EXPORTER_OTLP_ENDPOINT`.
    """
    captures, log, printed = (directory / name for name in ("model-calls", "server.log", "server.out"))
    command = ["uvicorn", app, "--host", "127.0.0.1", "--port", "{port}"]
    command += ["--log-level", "critical"]  # uvicorn's own log of a request has its query
    environment = {"OTEL_GYM_MODEL_CALL_CAPTURE_DIR": str(captures), **variables}
    launcher = ("sh", "-c", 'out=$1; shift; exec "$@" >"$out"', "sh", str(printed))
    with listening(command, log, environment, launcher) as port:
        server = CapturedServer(port, captures, log, printed)
        try:
            yield server
        finally:
            server.close()


def destination(*entries: Mapping[str, Any]) -> str:
    """The value of `OTEL_GYM_MIRROR_DESTINATIONS` for these."""
    return json.dumps(entries)
