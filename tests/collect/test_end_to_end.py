"""Everything at once, in real processes: model server, agent, collector, failures, a kill, a resumed collection."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from otel_gym_jsonl import CaptureStore
from tests.collect.conftest import pairs_of, rows_of
from tests.collect.injection import fails
from tests.servers.processes import listening, wait_until

COMMAND = str(Path(sys.executable).parent / "otel-gym")
TASKS, REPEATS, WORKERS = 200, 2, 4
CALLS = 3  # of each rollout of the example's agent


class Field:
    """Where one collection happens."""

    def __init__(self, directory: Path, agent: str) -> None:
        self.output = directory / "rollouts.jsonl"
        self.store = CaptureStore(directory / "calls")
        source = directory / "tasks.jsonl"
        source.write_text("".join(json.dumps({"question": number}) + "\n" for number in range(TASKS)))
        self.command = [COMMAND, "collect", "--agent", agent, "--input", str(source), "--output", str(self.output)]
        self.command += ["--num-repeats", str(REPEATS), "--concurrency", "64", "--json"]
        self.command += ["--capture-dir", str(self.store.directory)]

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen([*self.command, "--resume"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self) -> tuple[int, dict[str, Any]]:
        with self.start() as process:
            said, errors = process.communicate(timeout=200)
        assert said, errors
        return process.returncode, json.loads(said)


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    (tmp_path / "calls").mkdir()
    captured = {"OTEL_GYM_MODEL_CALL_CAPTURE_DIR": str(tmp_path / "calls")}
    quiet = ["--port", "{port}", "--log-level", "critical"]
    with ExitStack() as running:
        command = ["uvicorn", "examples.model_server:app", "--workers", str(WORKERS), *quiet]
        model = running.enter_context(listening(command, tmp_path / "model.log", captured))
        known = {**captured, "OTEL_GYM_MODEL_SERVERS": json.dumps({"policy": f"http://127.0.0.1:{model}"})}
        command = ["uvicorn", "tests.collect.flaky_agent:app", *quiet]
        agent = running.enter_context(listening(command, tmp_path / "agent.log", known))
        yield Field(tmp_path, f"http://127.0.0.1:{agent}")


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.timeout(600)
def test_failures_and_a_kill_cost_no_row_and_no_call(field: Field) -> None:
    with field.start() as process:
        wait_until(lambda: field.output.exists() and field.output.read_bytes().count(b"\n") >= 150, 120)
        process.kill()
        process.communicate()
    before = [row for row in field.output.read_bytes().splitlines(keepends=True) if row.endswith(b"\n")]
    assert 150 <= len(before) < TASKS * REPEATS
    code, summary = field.finish()
    assert (0, True, TASKS * REPEATS) == (code, summary["complete"], summary["with_result"])
    assert summary["retried"]

    rows = rows_of(field.output)
    assert [(task, rollout) for task in range(TASKS) for rollout in range(REPEATS)] == pairs_of(field.output)
    assert field.output.read_bytes().startswith(b"".join(before))
    attached = {row["ng_model_call_capture"]["rollout_id"]: row for row in rows}
    for rollout_id, row in attached.items():
        capture = row["ng_model_call_capture"]
        in_file = [record["model_call_id"] for record in field.store.read(rollout_id)]
        assert in_file == [call["model_call_id"] for call in capture["calls"]]
        assert (CALLS, 1.0, None) == (len(in_file), row["reward"], capture.get("gaps"))
    assert TASKS * REPEATS * CALLS == sum(row["ng_model_call_capture"]["metrics"]["num_calls"] for row in rows)

    # Every other file is of an attempt that failed or was killed, and has a later one that did not.
    attempts = {(row["_ng_task_index"], row["_ng_rollout_index"]): row.get("_ng_attempt_index", 0) for row in rows}
    for rollout_id in set(field.store.rollout_ids()) - attached.keys():
        task, rollout, *attempt = map(int, rollout_id.replace("a", "").split("-"))
        assert (attempt or [0])[0] < attempts[task, rollout]
    assert {True} == {attempt > 0 for pair, attempt in attempts.items() if fails(*pair)}
