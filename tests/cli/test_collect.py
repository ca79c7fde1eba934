"""The real command: what it says, its exit codes, signals and kills."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from otel_gym.cli import main
from tests.cli.collecting import Collecting
from tests.collect.conftest import AgentServer, Write, agent, pairs_of, rows_of, tasks
from tests.peak_memory import PEAK_KB
from tests.sample_records import capture, record
from tests.servers.processes import wait_until

__all__ = ["agent", "tasks"]  # fixtures

KILLS = 6
JSON = ("--json", "--quiet")
MEASURED = (
    "import sys; from otel_gym.cli import main; code = main(sys.argv[1:]); "
    f"print({PEAK_KB}, file=sys.stderr); sys.exit(code)"
)


@pytest.mark.servers
def test_the_real_command_says_what_it_did(agent: AgentServer, tasks: Write, tmp_path: Path) -> None:
    collecting = Collecting(agent, tasks({}, {}), tmp_path / "out.jsonl", "--num-repeats", "2")
    out = tmp_path / "out.jsonl"
    code, said, errors = collecting.run("--quiet")
    assert (0, "") == (code, errors)
    assert said.startswith(f"complete: 4 of 4 rollouts have a result, in {out}\nNo capture directory: ")
    assert [(0, 0), (0, 1), (1, 0), (1, 1)] == pairs_of(out)
    code, said, errors = collecting.run()
    assert (2, "") == (code, said)
    assert "say --resume to go on with them" in errors


@pytest.mark.servers
def test_what_is_missing_is_told_and_the_exit_code_says_so(agent: AgentServer, tasks: Write, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    calls.mkdir()
    rows = tasks({}, {"do": {"status": 404}}, "{broken")
    collecting = Collecting(agent, rows, tmp_path / "out.jsonl", "--capture-dir", str(calls))
    code, said, _ = collecting.run()
    assert 1 == code
    said = " ".join(said.split())
    assert f"task 1, rollout 0: {agent.url}/run answered 404: not now" in said
    assert "line 2 of the input, counted from 0" in said
    assert "model_call_capture_no_records: 2 rows. no records" in said
    assert "incomplete: 1 of 3 rollouts have a result, 2 failed (http_status 1, input_invalid 1), 0 calls" in said
    assert f"model calls: {calls} The same command with --resume runs what has no result." in said


@pytest.mark.servers
def test_json_says_the_same(agent: AgentServer, tasks: Write, tmp_path: Path) -> None:
    collecting = Collecting(agent, tasks({}, {"do": {"status": 404}}), tmp_path / "out.jsonl", "--json")
    code, said, _ = collecting.run()
    found = json.loads(said)
    expected: dict[str, Any] = {"wanted": 2, "with_result": 1, "done": 1, "earlier": 0, "missing": 0, "retried": 0}
    expected |= {"failed": {"http_status": 1}, "interrupted": False, "complete": False, "capture_dirs": []}
    assert (1, expected) == (code, {key: found[key] for key in expected})
    assert [(1, 0, None)] == [(each["task"], each["rollout"], each["line"]) for each in found["failures"]]


@pytest.mark.servers
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_dispatch_and_waits_for_what_runs(
    agent: AgentServer, tasks: Write, tmp_path: Path, number: signal.Signals
) -> None:
    rows = tasks(*({"do": {"sleep": 0.5}} for _ in range(100)))
    collecting = Collecting(agent, rows, tmp_path / "out.jsonl", "--concurrency", "4")
    with collecting.start() as process:
        wait_until(lambda: len(collecting.lines) >= 4)
        process.send_signal(number)
        out, errors = process.communicate(timeout=60)
    assert 130 == process.returncode
    assert "interrupted: " in out
    assert "--resume" in out
    written = rows_of(collecting.output)
    assert len(agent.posted()) == len(written) < 100, errors
    assert collecting.run("--resume", "--concurrency", "64")[0] == 0
    assert [(task, 0) for task in range(100)] == pairs_of(collecting.output)
    assert 100 == len(agent.posted())


@pytest.mark.servers
def test_a_second_signal_cancels(agent: AgentServer, tasks: Write, tmp_path: Path) -> None:
    rows = tasks({}, *({"do": {"sleep": 600}} for _ in range(10)))
    collecting = Collecting(agent, rows, tmp_path / "out.jsonl")
    with collecting.start() as process:
        wait_until(lambda: len(agent.posted()) == 11 and len(collecting.lines) == 1)
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert 130 == process.returncode
    assert "interrupted: 1 of 11 rollouts have a result, 10 not run" in out
    assert [(0, 0)] == pairs_of(collecting.output)


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.parametrize("captured", [False, True])
def test_no_kill_loses_a_finished_row(agent: AgentServer, tasks: Write, tmp_path: Path, captured: bool) -> None:
    rows = tasks(*({"say": f"{number} " + "x" * 5_000, "do": {"sleep": 0.05}} for number in range(400)))
    collecting = Collecting(agent, rows, tmp_path / "out.jsonl", "--concurrency", "8", "--quiet")
    if captured:
        (tmp_path / "calls").mkdir()
        capture(tmp_path / "calls", "0-0", record())  # of a run long ago: it is nobody's now
        collecting.command += ["--capture-dir", str(tmp_path / "calls")]
    generator = random.Random(5)
    for attempt in range(KILLS):
        before = collecting.lines
        with collecting.start("--resume") as process:
            wait_until(lambda before=before: len(collecting.lines) > len(before))  # type: ignore[misc]  # a default
            time.sleep(generator.uniform(0, 0.3))
            process.kill()
            process.communicate()
        data = collecting.output.read_bytes()
        assert data.startswith(b"".join(before))
        assert len(data.splitlines()) - len(collecting.lines) <= 1
        seen = [row.get("_ng_attempt_index", 0) for row in agent.posted()]
        assert seen == sorted(seen)
        assert attempt == seen[-1]
    # As a kill in the middle of a write leaves it.
    collecting.output.write_bytes(collecting.output.read_bytes() + b'{"reward": 1.5')
    before = collecting.lines
    code, out, errors = collecting.run("--resume")
    assert (0, "") == (code, errors), out
    assert collecting.output.read_bytes().startswith(b"".join(before))
    assert [(task, 0) for task in range(400)] == pairs_of(collecting.output)
    posted = {(row["_ng_task_index"], row.get("_ng_attempt_index", 0)) for row in agent.posted()}
    assert len(agent.posted()) == len(posted), "no attempt is begun twice"
    gaps = [
        [gap["code"] for gap in row["ng_model_call_capture"]["gaps"]] for row in rows_of(collecting.output) if captured
    ]
    assert [["model_call_capture_no_records"]] * (400 * captured) == gaps


WRONG = [
    ({2: "host:1"}, "allowed: a URL"),
    ({2: "http://host:port"}, "allowed: a URL"),
    ({4: "{folder}/missing"}, "there is no file"),
    ({6: "{folder}"}, "is a directory"),
    ({6: "{folder}/missing/out.jsonl"}, "to write into"),
    ({6: "{folder}/tasks.jsonl"}, "the output is the input"),
    ({8: "{folder}/missing"}, "there is no directory"),
    ({7: "--num-repeats", 8: "0"}, "a whole number from 1 on"),
    ({7: "--retries", 8: "-1"}, "a whole number from 0 on"),
    ({7: "--timeout", 8: "nan"}, "a number of seconds above 0"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_wrong_usage_is_told_and_nothing_is_written(
    tmp_path: Path, change: dict[int, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tasks.jsonl").write_text("{}\n")
    arguments = ["collect", "--agent", "http://127.0.0.1:9", "--input", str(tmp_path / "tasks.jsonl"), "--output"]
    arguments += [str(tmp_path / "out.jsonl"), "--capture-dir", str(tmp_path)]
    for place, value in change.items():
        arguments[place] = value.format(folder=tmp_path)
    assert 2 == main(arguments)
    assert message in capsys.readouterr().err
    assert ["tasks.jsonl"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.slow
@pytest.mark.servers
def test_memory_does_not_grow_with_the_tasks(agent: AgentServer, tmp_path: Path) -> None:
    """200,000 tasks of 2 KB, of which all but the last hundred are finished: 400 MB of input, 20 MB of output."""
    source, output = tmp_path / "many.jsonl", tmp_path / "out.jsonl"
    row = json.dumps({"prompt": "x" * 2_000}) + "\n"
    with source.open("w") as file:
        for _ in range(200):
            file.write(row * 1_000)
    with output.open("w") as file:
        file.writelines(f'{{"reward": 1, "_ng_task_index": {n}, "_ng_rollout_index": 0}}\n' for n in range(199_900))
    command = Collecting(agent, source, output, "--resume", "--quiet").command[1:]
    done = subprocess.run([sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, timeout=250)
    assert (0, 100) == (done.returncode, len(agent.posted())), done
    assert int(done.stderr) < 150_000, "kB at its peak"


def measured(collecting: Collecting) -> tuple[dict[str, Any], int]:
    """What it says, and its peak of memory in kB."""
    command = [sys.executable, "-c", MEASURED, *collecting.command[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    return json.loads(done.stdout), int(done.stderr)


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.parametrize("do", [{"bytes": 1 << 30}, {"bytes": 1 << 30, "says": "so"}])
def test_answers_of_a_gigabyte_become_failures_and_are_never_held(
    agent: AgentServer, tasks: Write, tmp_path: Path, do: dict[str, Any]
) -> None:
    """Eight at a time, without and with a length."""
    collecting = Collecting(agent, tasks(*({"do": do} for _ in range(8)), {}), tmp_path / "out.jsonl", *JSON)
    said, peak = measured(collecting)
    assert ({"too_large": 8}, 1) == (said["failed"], said["done"])
    failed = [row for row in rows_of(collecting.output) if "ng_error" in row]
    assert {True} == {"at most 268,435,456 are read" in row["ng_error"]["message"] for row in failed}
    assert {True} == {"reward" not in row for row in failed}
    assert peak < 150_000


@pytest.mark.slow
@pytest.mark.servers
def test_long_answers_are_in_memory_one_after_another(agent: AgentServer, tasks: Write, tmp_path: Path) -> None:
    """Eight of 100 MB at a time: together they would be 800 MB before any is parsed."""
    rows = tasks(*({"do": {"bytes": 100 << 20}} for _ in range(8)))
    said, peak = measured(Collecting(agent, rows, tmp_path / "out.jsonl", *JSON))
    assert 8 == said["done"]
    assert peak < 300_000
