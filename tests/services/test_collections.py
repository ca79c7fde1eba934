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

from otel_gym.collect.unsent import path_of
from otel_gym.trace_ids import call_span_id, rollout_trace, run_id_of
from otel_gym_jsonl import CaptureStore
from tests.collect.conftest import pairs_of, rows_of
from tests.collect.injection import failure_of
from tests.ports import free_ports
from tests.servers.processes import environment, listening, wait_until
from tests.services.jaeger import Jaeger, JaegerSpan

COMMAND = str(Path(sys.executable).parent / "otel-gym")
TASKS, REPEATS, WORKERS = 200, 2, 4
CALLS = 3  # of each rollout of the example's agent
LONGEST_S = 30


class Field:
    """Where collections of an agent happen, with a captured model server and a Jaeger."""

    def __init__(self, directory: Path, agent: str, jaeger: Jaeger) -> None:
        self.directory = directory
        self.output = directory / "rollouts.jsonl"
        self.store = CaptureStore(directory / "calls")
        self.jaeger = jaeger
        self._agent = agent

    def start(self, *rows: dict[str, Any], repeats: int = 1, otlp: str | None = None) -> subprocess.Popen[str]:
        source = self.directory / "tasks.jsonl"
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        command = [COMMAND, "collect", "--agent", self._agent, "--input", str(source), "--output", str(self.output)]
        command += ["--num-repeats", str(repeats), "--concurrency", "64", "--json", "--resume"]
        command += ["--timeout", str(LONGEST_S)]
        return subprocess.Popen(
            [*command, "--capture-dir", str(self.store.directory)],
            env=environment({"OTEL_EXPORTER_OTLP_ENDPOINT": otlp or self.jaeger.otlp_http}),
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


@pytest.mark.servers
def test_compactions_stand_where_they_happened(running: ExitStack, tmp_path: Path, jaeger: Jaeger) -> None:
    team = field(running, tmp_path, jaeger, "tests.collect.compacting_team:app", workers=1)
    code, summary = team.finish({"agent_ref": {"name": "team"}})
    assert (0, 7) == (code, summary["calls"])
    found = team.trace("0-0", 17)
    by_id = {span.span_id: span for span in found}
    lead = next(span for span in found if span.tags.get("gen_ai.agent.id") == "lead")
    by_a_call, by_hand = (span for span in found if span.name == "compact_context")
    assert {lead.span_id} == {by_a_call.parent_id, by_hand.parent_id}
    assert [("auto", 900, 80, "done", "derived"), ("manual", None, None, None, "reported")] == [
        tuple(
            span.tags.get(f"otel_gym.{name}")
            for name in (
                "compaction.trigger",
                "compaction.tokens_before",
                "compaction.tokens_after",
                "compaction.outcome",
                "observed.times",
            )
        )
        for span in (by_a_call, by_hand)
    ]
    summing_up = max((span for span in found if span.name == "chat m"), key=lambda span: span.start_us)
    assert (summing_up.start_us, summing_up.duration_us) == (by_a_call.start_us, by_a_call.duration_us)
    assert [] == [warning for span in found for warning in span.warnings]
    assert lead.start_us <= by_a_call.start_us <= by_hand.start_us
    assert by_hand.start_us <= lead.start_us + lead.duration_us + 1, "Jaeger cuts off what is below a microsecond"
    assert len(found) == len(by_id) == 17


@pytest.mark.servers
def test_what_a_killed_collector_could_not_send_is_sent_when_it_is_resumed(
    running: ExitStack, tmp_path: Path, jaeger: Jaeger
) -> None:
    team = field(running, tmp_path, jaeger, "tests.collect.lingering_team:app", workers=1)
    tasks = [{"agent_ref": {"name": "team"}, "linger": number == 5} for number in range(6)]
    [nowhere] = free_ports(1)
    with team.start(*tasks, otlp=f"http://127.0.0.1:{nowhere}") as process:
        wait_until(lambda: team.output.exists() and team.output.read_bytes().count(b"\n") == 5, 60)
        wait_until(lambda: len(team.store.read("5-0")) == 6, 60)
        process.kill()
        process.communicate()
    assert 6 == len(team.trace("0-0", 6)), "what the model server sent"
    code, summary = team.finish(*tasks)
    assert (0, 5, 1) == (code, summary["earlier"], summary["done"])
    for rollout_id in ("0-0", "1-0", "2-0", "3-0", "4-0", "5-0-a1"):
        found = team.trace(rollout_id, 14)
        assert 14 == len({span.span_id for span in found}) == len(found)
        [root] = [span for span in found if span.parent_id is None]
        assert ("invoke_agent team", 1.0) == (root.name, root.events[0]["gen_ai.evaluation.score.value"])
        assert [] == [warning for span in found for warning in span.warnings]
    *calls, root = sorted(team.trace("5-0", 7), key=lambda span: span.parent_id is None)
    assert (6, {root.span_id}) == (len(calls), {span.parent_id for span in calls})
    assert ("invoke_agent team", "interrupted") == (root.name, root.tags["error.type"])
    assert root.start_us < min(span.start_us for span in calls)
    last = max(span.start_us + span.duration_us for span in calls)
    assert abs(root.start_us + root.duration_us - last) < 1_000
    assert [] == [path.name for path in tmp_path.iterdir() if path.name.endswith(".collect-spans.jsonl")]


@pytest.mark.servers
def test_what_is_sent_twice_is_one_span(running: ExitStack, tmp_path: Path, jaeger: Jaeger) -> None:
    team = field(running, tmp_path, jaeger, "examples.agent_team:app", workers=1)
    [nowhere] = free_ports(1)
    with team.start({"task_id": "t"}, otlp=f"http://127.0.0.1:{nowhere}") as process:
        wait_until(lambda: team.output.exists() and team.output.read_bytes().endswith(b"\n"), 60)
        process.kill()
        process.communicate()
    missing = path_of(team.output)
    as_killed = missing.read_bytes()
    for _ in range(2):
        assert 0 == team.finish({"task_id": "t"})[0]
        assert not missing.exists()
        missing.write_bytes(as_killed)  # as a kill leaves it between the backend's answer and the note of it
    found = team.trace("0-0", 14)
    assert 14 == len(found) == len({span.span_id for span in found})


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
    rows = rows_of(place.output)
    everyone = [(task, rollout) for task in range(TASKS) for rollout in range(REPEATS)]
    assert everyone == pairs_of(place.output)
    assert set(before) <= set(place.output.read_bytes().splitlines(keepends=True)) | failed_rows(before)
    failures = {(row["_ng_task_index"], row["_ng_rollout_index"]): row["ng_error"] for row in rows if "ng_error" in row}
    assert (1, len(failures)) == (code, sum(summary["failed"].values()))
    assert {"malformed": "malformed", "timeout": "timeout"} == {
        failure_of(*pair): error["code"] for pair, error in failures.items()
    }
    assert summary["retried"]
    check_calls(place, rows)

    code, summary = place.finish(*tasks, repeats=REPEATS)
    assert (0, True, TASKS * REPEATS) == (code, summary["complete"], summary["with_result"])
    rows = rows_of(place.output)
    assert everyone == pairs_of(place.output)
    assert {1.0} == {row["reward"] for row in rows}
    attached = check_calls(place, rows)
    attempts = {(row["_ng_task_index"], row["_ng_rollout_index"]): row.get("_ng_attempt_index", 0) for row in rows}
    assert {True} == {attempts[pair] > 0 for pair in everyone if failure_of(*pair) is not None}

    # Every call of every attempt is in Jaeger, those that failed and those that were killed too, once, below its root.
    # An agent whose collector was killed goes on: what it asks while nobody collects has no parent.
    for rollout_id in place.store.rollout_ids():
        ids = [f"{call_span_id(record['model_call_id']):016x}" for record in place.store.read(rollout_id)]
        root = f"{rollout_trace(run_id_of(place.store.directory), rollout_id).root_span_id:016x}"
        found = place.trace(rollout_id, len(ids) + 1)
        parents = {span.span_id: span.parent_id for span in found}
        assert sorted([*ids, root]) == sorted(span.span_id for span in found)
        assert parents.pop(root) is None
        assert set(parents.values()) <= ({root} if rollout_id in attached else {root, None})
        if rollout_id not in attached:
            task, rollout, *attempt = map(int, rollout_id.replace("a", "").split("-"))
            assert (attempt or [0])[0] < attempts[task, rollout]
            [top] = [span for span in found if span.span_id == root]
            assert top.tags["error.type"] in {"http_status", "connection", "malformed", "timeout", "interrupted"}


def failed_rows(lines: list[bytes]) -> set[bytes]:
    """Those without a result: a later attempt makes them void."""
    return {line for line in lines if "ng_error" in json.loads(line)}


def check_calls(place: Field, rows: list[dict[str, Any]]) -> set[str]:
    """Calls in files are the calls in attachments, of failures too, and nothing is missing; the ids of the rollouts."""
    for row in rows:
        capture = row["ng_model_call_capture"]
        in_file = [record["model_call_id"] for record in place.store.read(capture["rollout_id"])]
        assert in_file == [call["model_call_id"] for call in capture["calls"]]
        assert (CALLS, CALLS, None) == (len(in_file), capture["metrics"]["num_calls"], capture.get("gaps"))
    return {row["ng_model_call_capture"]["rollout_id"] for row in rows}
