from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from otel_gym.cli import main
from tests.sample_records import capture, record

COMMAND = Path(sys.executable).parent / "otel-gym"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    (tmp_path / "calls").mkdir()
    for number in range(2):
        capture(tmp_path / "calls", f"{number}-0", record(), record())
    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join(f'{{"_ng_task_index": {n}, "_ng_rollout_index": 0, "reward": 1.50}}\n' for n in range(2)))
    return path


def command(rows: Path, *more: str) -> list[str]:
    out = str(rows.with_name("out.jsonl"))
    return ["attach", str(rows), "--capture-dir", str(rows.with_name("calls")), "-o", out, *more]


def test_the_real_command_attaches_and_says_what_it_did(rows: Path) -> None:
    done = subprocess.run([COMMAND, *command(rows)], capture_output=True, text=True, check=False, timeout=60)
    out = rows.with_name("out.jsonl")
    assert (0, "", f"complete: 2 rows, 2 attached, 4 calls, in {out}\n") == (done.returncode, done.stderr, done.stdout)
    for old, new in zip(rows.read_text().splitlines(), out.read_text().splitlines(), strict=True):
        assert new.startswith(old[:-1] + ',"ng_model_call_capture":{"rollout_id":')
        assert list(json.loads(new))[-2:] == ["ng_model_call_capture", "ng_trajectory"]


def test_damaged_rows_and_gaps_are_told_and_make_it_incomplete(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (rows.with_name("calls") / "1-0.capture.incomplete").touch()
    rows.write_text(rows.read_text() + "{broken\n")
    assert main(command(rows)) == 1
    shown = capsys.readouterr()
    assert f"{rows}:3: carried over unchanged: Expecting property name enclosed in double quotes" in shown.err
    assert "model_call_capture_incomplete: 1 row. incomplete: the marker file says" in shown.out
    assert shown.out.splitlines()[-1].startswith("incomplete: 3 rows, 2 attached, 4 calls, in ")
    assert rows.with_name("out.jsonl").read_text().splitlines()[2] == "{broken"


def test_json_says_the_same(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows.write_text("[]\n" + rows.read_text())
    assert main(command(rows, "--json")) == 1
    assert {
        "input": str(rows),
        "output": str(rows.with_name("out.jsonl")),
        "unchanged": [{"line": 1, "reason": "it begins with b'[]', not with the '{' of a JSON object"}],
        "rows": 3,
        "attached": 2,
        "calls": 4,
        "gaps": {},
        "complete": False,
    } == json.loads(capsys.readouterr().out)


def test_many_damaged_rows_are_not_all_listed(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows.write_text("x\n" * 100)
    assert main(command(rows)) == 1
    lines = capsys.readouterr().err.splitlines()
    assert (21, "otel-gym attach: and 80 more ('--json' lists all)") == (len(lines), lines[-1])


def test_without_payloads_nothing_that_was_sent_or_came_is_written(rows: Path) -> None:
    assert main(command(rows, "--no-payloads")) == 0
    assert "Which tests fail?" not in rows.with_name("out.jsonl").read_text()


def test_several_directories_are_read(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = rows.with_name("other")
    other.mkdir()
    capture(other, "0-0", record())
    assert main(command(rows, "--capture-dir", str(other))) == 0
    assert "5 calls" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({1: "{folder}/missing.jsonl"}, "there is no file"),
        ({3: "{folder}/missing"}, "there is no directory"),
        ({3: "{folder}/rollouts.jsonl"}, "is a file"),
        ({5: "{folder}/rollouts.jsonl"}, "the output is the input"),
        ({5: "{folder}/missing/out.jsonl"}, "to write into"),
        ({5: "{folder}/calls"}, "is a directory"),
    ],
)
def test_wrong_usage_is_told_and_nothing_is_written(
    rows: Path, change: dict[int, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = command(rows)
    for place, value in change.items():
        arguments[place] = value.format(folder=rows.parent)
    before = rows.read_bytes()
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
    assert ({"calls", "rollouts.jsonl"}, before) == ({path.name for path in rows.parent.iterdir()}, rows.read_bytes())
