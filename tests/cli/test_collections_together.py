"""Several real `otel-gym collect` on one capture directory, and calls there that belong to none of them."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import httpx
import pytest

from otel_gym.cli import main
from tests.cli.collecting import Collecting
from tests.collect.conftest import AgentServer, Write, agent, pairs_of, tasks
from tests.servers.processes import listening, wait_until

__all__ = ["agent", "tasks"]  # fixtures

pytestmark = pytest.mark.servers


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    (tmp_path / "calls").mkdir()
    return tmp_path / "calls"


def named(first: int, count: int, seconds: float) -> list[dict[str, object]]:
    return [{"_ng_task_index": first + number, "do": {"sleep": seconds}} for number in range(count)]


def test_one_that_would_run_a_rollout_of_another_is_refused_and_touches_nothing(
    agent: AgentServer, tasks: Write, tmp_path: Path, calls: Path
) -> None:
    first = Collecting(agent, tasks(*named(0, 8, 600)), tmp_path / "first.jsonl", "--capture-dir", str(calls))
    second = Collecting(agent, tasks(*named(7, 8, 0)), tmp_path / "second.jsonl", "--capture-dir", str(calls))
    with first.start() as process:
        wait_until(lambda: len(agent.posted()) == 8)
        code, said, errors = second.run()
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert (2, "", []) == (code, said, second.lines)
    assert f"{calls}: another collection runs rollout 7-0 on this capture directory (process {process.pid}" in errors
    assert f"writes {first.output}), and model calls of the two would be mixed; wait for its end, or" in errors
    assert 8 == len(agent.posted())
    assert 0 == second.run()[0], "the first was killed"
    assert [(task, 0) for task in range(7, 15)] == pairs_of(second.output)


def test_those_of_other_rollouts_run_side_by_side(
    agent: AgentServer, tasks: Write, tmp_path: Path, calls: Path
) -> None:
    sources = [tasks(*named(10 * number, 6, 2)) for number in range(3)]
    outputs = [tmp_path / f"{number}.jsonl" for number in range(3)]
    running = [
        Collecting(agent, source, output, "--capture-dir", str(calls), "--json").start()
        for source, output in zip(sources, outputs, strict=True)
    ]
    wait_until(lambda: len(agent.posted()) == 18)
    for process in running:
        said, errors = process.communicate(timeout=60)
        assert (0, 6) == (process.returncode, json.loads(said)["done"]), errors
    assert [[(10 * number + task, 0) for task in range(6)] for number in range(3)] == list(map(pairs_of, outputs))


def test_a_killed_one_is_not_in_the_way_while_a_third_runs(
    agent: AgentServer, tasks: Write, tmp_path: Path, calls: Path
) -> None:
    other = Collecting(agent, tasks(*named(90, 1, 600)), tmp_path / "other.jsonl", "--capture-dir", str(calls))
    killed = Collecting(agent, tasks(*named(0, 8, 600)), tmp_path / "killed.jsonl", "--capture-dir", str(calls))
    again = Collecting(agent, tasks(*named(0, 8, 0)), tmp_path / "again.jsonl", "--capture-dir", str(calls))
    with other.start() as staying:
        wait_until(lambda: len(agent.posted()) == 1)
        with killed.start() as process:
            wait_until(lambda: len(agent.posted()) == 9)
            process.kill()
            process.communicate()
        code, _, errors = again.run()
        staying.kill()
        staying.communicate()
    assert 0 == code, errors
    assert [(task, 0) for task in range(8)] == pairs_of(again.output)


def test_calls_without_a_rollout_are_told_by_all_who_look(
    agent: AgentServer, tasks: Write, tmp_path: Path, calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["uvicorn", "examples.model_server:app", "--workers", "2", "--port", "{port}", "--log-level", "critical"]
    settings = {"OTEL_GYM_MODEL_CALL_CAPTURE_DIR": str(calls)}
    with listening(command, tmp_path / "model.log", settings) as port:

        def ask(path: str, number: int) -> None:
            for _ in range(number):  # a connection each, so that both workers get some
                body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
                httpx.post(f"http://127.0.0.1:{port}{path}", json=body, trust_env=False).raise_for_status()

        ask("/v1/chat/completions", 3)  # before anybody collects
        collecting = Collecting(agent, tasks({"do": {"sleep": 3}}), tmp_path / "out.jsonl", "--capture-dir", str(calls))
        with collecting.start() as process:
            wait_until(lambda: len(agent.posted()) == 1)
            ask("/v1/chat/completions", 20)
            ask("/ng-rollout/-x/v1/chat/completions", 1)
            ask("/ng-rollout/0-0/v1/chat/completions", 1)
            said, errors = process.communicate(timeout=60)
    assert 0 == process.returncode, errors
    said = " ".join(said.split())
    words = (
        "21 unattributed model calls (1 under an id that cannot name a file, 20 without the /ng-rollout/<id> prefix)"
    )
    assert words in said
    assert "1 call attached, 21 unattributed, in" in said
    assert 0 == main(["show", str(calls)])
    assert f"{words} while the last collection ran" in " ".join(capsys.readouterr().out.split())
    main(["show", str(calls), "--json"])
    assert {"no_prefix": 20, "bad_id": 1} == json.loads(capsys.readouterr().out)["totals"]["unattributed_calls"]
    assert 0 == main(["verify", str(calls)])
    assert f".otel-gym-collect.lock: unattributed_calls: {words}" in " ".join(capsys.readouterr().out.split())
    assert {".otel-gym-collect.lock", "0-0.capture.jsonl"} == {path.name for path in calls.iterdir()}
