from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from otel_gym.collect.row_file import RowFile
from otel_gym.collect.standing import Standing


def standing(tmp_path: Path, *rows: Any) -> Standing:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with contextlib.closing(RowFile(path)) as file:
        return Standing(file)


def row(task: int, rollout: int = 0, **more: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, **more}


FAILED: dict[str, Any] = {"ng_error": {"code": "timeout", "message": "m"}}


def test_a_pair_is_finished_when_it_has_a_result(tmp_path: Path) -> None:
    found = standing(tmp_path, row(0), row(1, 1, _ng_attempt_index=2), row(2, **FAILED))
    assert [True, False, True, False] == [pair in found.finished for pair in ((0, 0), (0, 1), (1, 1), (2, 0))]
    assert (3, 0, 2, set()) == (found.rows, found.damaged, found.highest_attempt, found.superseded)


def test_a_failure_is_void_once_its_pair_has_another_row(tmp_path: Path) -> None:
    """A killed collection did not get to tidy up."""
    found = standing(tmp_path, row(0, **FAILED), row(1, **FAILED), row(1, **FAILED), row(0))
    assert 2 == len(found.superseded)
    found.supersede((1, 0))
    found.supersede((7, 0))
    assert 3 == len(found.superseded)


def test_bad_lines_of_the_input_have_rows_without_a_pair(tmp_path: Path) -> None:
    bad = {"ng_error": {"code": "input_invalid", "message": "m", "line": 4}}
    found = standing(tmp_path, bad)
    found.supersede(4)
    assert (1, {0}) == (found.rows, found.superseded)


def test_lines_that_are_no_rows_of_a_rollout_are_counted(tmp_path: Path) -> None:
    assert 3 == standing(tmp_path, [], {"a": 1}, row(0), {"_ng_task_index": 1, "_ng_rollout_index": -1}).damaged


def test_nothing_stands_in_an_empty_file(tmp_path: Path) -> None:
    found = standing(tmp_path)
    assert (0, -1, 0) == (found.rows, found.highest_attempt, len(found.finished))
