"""Everything at once, in real processes: model server, agent, collector, Jaeger; failures, a kill, a resumption."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from otel_gym.trace_ids import call_span_id, rollout_trace, run_id_of
from otel_gym_jsonl import CaptureStore
from tests.collect.conftest import pairs_of, rows_of
from tests.collect.injection import fails
from tests.servers.processes import environment, listening, wait_until
from tests.services.jaeger import Jaeger, JaegerSpan

COMMAND = str(Path(sys.executable).parent / "otel-gym")
TASKS, REPEATS, WORKERS = 200, 2, 4
CALLS = 3  # of each rollout of the example's agent


class Field:
    """Where collections of an agent happen, with a captured model server and a Jaeger."""

    def __init__(self, directory: Path, agent: str, jaeger: Jaeger) -> None:
        self.directory = directory
        self.output = directory / "rollouts.jsonl"
        self.store = CaptureStore(directory / "calls")
        self.jaeger = jaeger
        self._agent = agent

    def start(self, *rows: dict[str, Any], repeats: int = 1) -> subprocess.Popen[str]:
        source = self.directory / "tasks.jsonl"
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        command = [COMMAND, "collect", "--agent", self._agent, "--input", str(source), "--output", str(self.output)]
        command += ["--num-repeats", str(repeats), "--concurrency", "64", "--json", "--resume"]
        return subprocess.Popen(
            [*command, "--capture-dir", str(self.store.directory)],
            env=environment({"OTEL_EXPORTER_OTLP_ENDPOINT": self.jaeger.otlp_http}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, *rows: dict[str, Any], repeats: int = 1) -> tuple[int, dict[str, Any]]:
        with self.start(*rows, repeats=repeats) as process:
            said, errors = process.communicate(timeout=200)
        assert said, errors
        return process.returncode, json.loads(said)

    def trace(self, rollout_id: str, count: int) -> list[JaegerSpan]:
        """The spans of a rollout, as soon as there are so many."""
        trace_id = rollout_trace(run_id_of(self.store.directory), rollout_id).trace_id
        return self.jaeger.wait_for(f"{trace_id:032x}", count)


@pytest.fixture
def running() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def field(running: ExitStack, directory: Path, jaeger: Jaeger, agent: str, workers: int) -> Field:
    (directory / "calls").mkdir()
    captured = {"OTEL_GYM_MODEL_CALL_CAPTURE_DIR": str(directory / "calls")}
    traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": jaeger.otlp_http, "OTEL_GYM_MODEL_SERVER_NAME": "policy"}
    quiet = ["--port", "{port}", "--log-level", "critical"]
    command = ["uvicorn", "examples.model_server:app", "--workers", str(workers), *quiet]
    model = running.enter_context(listening(command, directory / "model.log", {**captured, **traced}))
    known = {**captured, "OTEL_GYM_MODEL_SERVERS": json.dumps({"policy": f"http://127.0.0.1:{model}"})}
    port = running.enter_context(listening(["uvicorn", agent, *quiet], directory / "agent.log", known))
    return Field(directory, f"http://127.0.0.1:{port}", jaeger)


@pytest.mark.servers
def test_a_rollout_of_sub_agents_is_one_tree_in_right_order(running: ExitStack, tmp_path: Path, jaeger: Jaeger) -> None:
    team = field(running, tmp_path, jaeger, "examples.agent_team:app", workers=1)
    code, summary = team.finish({"agent_ref": {"name": "team"}})
    assert (0, 6) == (code, summary["calls"])
    found = team.trace("0-0", 14)
    by_id = {span.span_id: span for span in found}
    root = next(span for span in found if span.parent_id is None)
    assert ("invoke_agent team", "otel-gym collect", root) == (root.name, root.service, found[0])
    [scored] = root.events
    assert 1.0 == scored["gen_ai.evaluation.score.value"]
    names = Counter((span.name, by_id[span.parent_id].name) for span in found if span.parent_id is not None)
    assert {
        ("chat m", "invoke_agent team"): 6,
        ("invoke_agent", "invoke_agent team"): 1,
        ("invoke_agent", "invoke_agent"): 2,
        ("execute_tool population", "invoke_agent"): 4,
    } == dict(names)
    assert [] == [warning for span in found for warning in span.warnings]
    starts = [span.start_us for span in found]
    assert all(by_id[span.parent_id].start_us <= span.start_us for span in found if span.parent_id is not None)
    for sub_agent in (span for span in found if span.links):
        linked = [by_id[span_id] for _, span_id in sub_agent.links]
        tools = [span for span in found if span.parent_id == sub_agent.span_id]
        order = [span.name for span in sorted([*linked, *tools], key=lambda span: (span.start_us, span.span_id))]
        call, tool = "chat m", "execute_tool population"
        assert [call, tool, call, tool, call] == order
    assert starts == sorted(starts)


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.timeout(600)
def test_failures_and_a_kill_cost_no_row_and_no_call(running: ExitStack, tmp_path: Path, jaeger: Jaeger) -> None:
    place = field(running, tmp_path, jaeger, "tests.collect.flaky_agent:app", WORKERS)
    tasks = [{"question": number} for number in range(TASKS)]
    with place.start(*tasks, repeats=REPEATS) as process:
        wait_until(lambda: place.output.exists() and place.output.read_bytes().count(b"\n") >= 150, 120)
        process.kill()
        process.communicate()
    before = [row for row in place.output.read_bytes().splitlines(keepends=True) if row.endswith(b"\n")]
    assert 150 <= len(before) < TASKS * REPEATS
    code, summary = place.finish(*tasks, repeats=REPEATS)
    assert (0, True, TASKS * REPEATS) == (code, summary["complete"], summary["with_result"])
    assert summary["retried"]

    rows = rows_of(place.output)
    assert [(task, rollout) for task in range(TASKS) for rollout in range(REPEATS)] == pairs_of(place.output)
    assert place.output.read_bytes().startswith(b"".join(before))
    attached = {row["ng_model_call_capture"]["rollout_id"]: row for row in rows}
    for rollout_id, row in attached.items():
        capture = row["ng_model_call_capture"]
        in_file = [record["model_call_id"] for record in place.store.read(rollout_id)]
        assert in_file == [call["model_call_id"] for call in capture["calls"]]
        assert (CALLS, 1.0, None) == (len(in_file), row["reward"], capture.get("gaps"))
    assert TASKS * REPEATS * CALLS == sum(row["ng_model_call_capture"]["metrics"]["num_calls"] for row in rows)

    # A killed collector takes the last roots with it that wait to be sent; model calls are sent by their servers.
    kept = {(row["_ng_task_index"], row["_ng_rollout_index"]) for row in map(json.loads, before)}
    for rollout_id, row in attached.items():
        sure = (row["_ng_task_index"], row["_ng_rollout_index"]) not in kept
        found = {span.span_id: span.parent_id for span in place.trace(rollout_id, CALLS + sure)}
        ids = [f"{call_span_id(call['model_call_id']):016x}" for call in row["ng_model_call_capture"]["calls"]]
        root = f"{rollout_trace(run_id_of(place.store.directory), rollout_id).root_span_id:016x}"
        expected = {**dict.fromkeys(ids, root), **({root: None} if sure or root in found else {})}
        assert expected == found

    # Every other file is of an attempt that failed or was killed, and has a later one that did not.
    attempts = {(row["_ng_task_index"], row["_ng_rollout_index"]): row.get("_ng_attempt_index", 0) for row in rows}
    for rollout_id in set(place.store.rollout_ids()) - attached.keys():
        task, rollout, *attempt = map(int, rollout_id.replace("a", "").split("-"))
        assert (attempt or [0])[0] < attempts[task, rollout]
    assert {True} == {attempt > 0 for pair, attempt in attempts.items() if fails(*pair)}
