"""A gateway process in front of a process of the example worker that stages tokens."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from otel_gym.gateway import StagingLog
from otel_gym.staging import StagedCallRecord, StagedCalls
from otel_gym_jsonl import CaptureStore
from tests.servers.processes import listening, wait_until

STAGED_BY = "/ng-rollout/{}/training-token-capture"


class Trained(NamedTuple):
    """What a test knows of both.

    Attributes:
        port: of the gateway.
        worker: the worker's port.
        log: what became of the calls.
        staged: what the worker's sink holds.
        store: the capture.
        worker_log: the worker's stderr.
    """

    port: int
    worker: int
    log: StagingLog
    staged: StagedCalls
    store: CaptureStore
    worker_log: Path

    def url(self, rollout_id: str) -> str:
        return f"http://127.0.0.1:{self.port}{STAGED_BY.format(rollout_id)}"

    def tell(self, **orders: Any) -> None:
        """Tell the sink what to do from now on."""
        with contextlib.suppress(httpx.RemoteProtocolError):
            httpx.post(f"http://127.0.0.1:{self.worker}/sink", json=orders).raise_for_status()

    def rows(self, rollout_id: str) -> list[dict[str, Any]]:
        return [line["call"] for line in self.log.read(rollout_id) if line["disposition"] == "staged"]

    def failures(self, rollout_id: str) -> list[str]:
        return [line["reason"] for line in self.log.read(rollout_id) if line["disposition"] == "failed"]

    def chain(self, rollout_id: str) -> list[StagedCallRecord]:
        """The chain of the rollout's last staged call, from its root, along the parents that the log names."""
        by_id = {row["model_call_id"]: row for row in self.rows(rollout_id)}
        records: list[StagedCallRecord] = []
        at: str | None = list(by_id)[-1]
        while at is not None:
            row = by_id[at]
            record = self.staged.read(row["staging_key"]).record
            assert [row[key] for key in ("digest", "chain_hash", "cumulative_hash", "cum_len")] == [
                getattr(record, key) for key in ("digest", "chain_hash", "cumulative_hash", "cum_len")
            ]
            records.append(record)
            at = row["parent_call_id"]
        return records[::-1]


def until_it_listens(port: int) -> None:
    def listens() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False

    wait_until(listens, 60)


def worker_command(port: str) -> list[str]:
    return ["uvicorn", "examples.staging_worker:app", "--port", port, "--log-level", "warning"]


@contextlib.contextmanager
def gateway(folder: Path, upstream: int, capture: bool = True, *options: str) -> Iterator[int]:
    command = ["otel_gym", "gateway", "--upstream", f"http://127.0.0.1:{upstream}", "--port", "{port}", *options]
    command += ["--staging-log", str(folder / "log")]
    command += ["--capture-dir", str(folder / "captures")] if capture else []
    with listening(command, folder / "gateway.log", {}) as port:
        yield port


@contextlib.contextmanager
def trained(folder: Path, capture: bool = True) -> Iterator[Trained]:
    worker_log = folder / "worker.log"
    variables = {"STAGING_DIRECTORY": str(folder / "staged")}
    with (
        listening(worker_command("{port}"), worker_log, variables) as worker,
        gateway(folder, worker, capture) as port,
    ):
        store = CaptureStore(folder / "captures")
        yield Trained(port, worker, StagingLog(folder / "log"), StagedCalls(folder / "staged"), store, worker_log)
