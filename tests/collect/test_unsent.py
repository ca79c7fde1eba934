from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_gym.collect import unsent
from otel_gym.collect.unsent import Attempt, Unsent, forget, path_of


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "rollouts.jsonl"


def row(task: int, **more: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": 0, "prompt": "secret", **more}


def told(task: int) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": 0}


def test_what_was_not_confirmed_is_found_after_a_kill(output: Path) -> None:
    killed = Unsent(output)
    for task in range(4):
        killed.begun(f"{task}-0", row(task, agent_ref={"name": "team", "key": "secret"}), 100 + task)
    killed.ended("1-0", (110, 120), None, has_row=True)
    killed.ended("2-0", (111, 121), "timeout", has_row=False)
    killed.ended("3-0", (112, 122), None, has_row=True)
    killed.arrived("3-0")
    known = [{**told(task), "agent_ref": {"name": "team"}} for task in range(4)]
    assert {
        "0-0": Attempt(known[0], 100),
        "1-0": Attempt(known[1], 110, 120, None, True),
        "2-0": Attempt(known[2], 111, 121, "timeout", False),
    } == Unsent(output).left()
    assert b"secret" not in path_of(output).read_bytes()


def test_a_torn_line_and_lines_of_others_cost_only_themselves(output: Path) -> None:
    Unsent(output).begun("0-0", row(0), 1)
    with path_of(output).open("ab") as file:
        file.write(b'[1]\n{"id": "1-0", "attempt": {}}\n{"id": "0-0"')
    again = Unsent(output)
    again.begun("2-0", row(2), 3)
    assert {"0-0": Attempt(told(0), 1), "2-0": Attempt(told(2), 3)} == Unsent(output).left()


def test_a_file_is_left_only_where_something_may_be_missing(output: Path) -> None:
    first = Unsent(output)
    first.begun("0-0", row(0), 1)
    first.begun("1-0", row(1), 2)
    first.arrived("0-0")
    first.close()
    again = Unsent(output)
    assert {"1-0": Attempt(told(1), 2)} == again.left()
    again.arrived("1-0")
    again.close()
    assert not path_of(output).exists()
    forget(output)


def test_neither_the_file_nor_the_memory_grows_without_bound(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsent, "MOST_KEPT", 10)
    monkeypatch.setattr(unsent, "_ROOM", 50)
    kept = Unsent(output)
    for task in range(500):
        kept.begun(f"{task}-0", row(task), task)
        kept.ended(f"{task}-0", (task, task + 1), None, has_row=True)
    assert [f"{task}-0" for task in range(490, 500)] == list(kept.left()) == list(Unsent(output).left())
    assert path_of(output).read_bytes().count(b"\n") <= 60


def test_a_directory_that_takes_no_file_costs_nothing_else(tmp_path: Path) -> None:
    nowhere = Unsent(tmp_path / "missing" / "rollouts.jsonl")
    nowhere.begun("0-0", row(0), 1)
    nowhere.close()
    assert [] == list(tmp_path.iterdir())
