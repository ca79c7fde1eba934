from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_gym.collect.tasks import BadLine, Run, runs
from tests.collect.conftest import Write


def found(path: Path, limit: int | None = None, repeats: int = 1) -> list[Any]:
    return [item if isinstance(item, BadLine) else item.pair for item in runs(path, limit, repeats)]


def test_a_missing_task_index_is_the_number_of_the_line_from_0_empty_lines_counted(tasks: Write) -> None:
    assert [(0, 0), (3, 0), (7, 0)] == found(tasks({}, "", "  ", {}, {"_ng_task_index": 7}))


def test_each_task_is_repeated_in_its_place(tasks: Write) -> None:
    assert [(0, 0), (0, 1), (1, 4), (1, 5)] == found(tasks({}, {"_ng_rollout_index": 2}, {}), limit=2, repeats=2)


def test_a_limit_of_nothing_is_nothing(tasks: Write) -> None:
    assert [] == found(tasks({}), limit=0)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[]", "not with the '{' of a JSON object"),
        ('{"a": ', "Expecting value"),
        ('{"_ng_task_index": -1}', "_ng_task_index is -1; allowed: a whole number from 0 on"),
        ('{"_ng_rollout_index": true}', "_ng_rollout_index is True; allowed"),
        ('{"_ng_attempt_index": "1"}', "_ng_attempt_index is '1'; allowed"),
        ('{"_ng_rollout_id": "../x"}', "its rollout id is '../x', which cannot name a capture file"),
        ('{"_ng_rollout_id": "%s"}' % ("x" * 300), "which cannot name a capture file"),
        ('{"_ng_task_index": 0}', "a line before it is task 0, rollout 0 too"),
    ],
)
def test_a_bad_line_is_named_and_costs_only_itself(tasks: Write, line: str, reason: str) -> None:
    first, bad, last = found(tasks({}, line, {}))
    assert ((0, 0), (2, 0), 1) == (first, last, bad.line)
    assert reason in bad.reason


def test_two_runs_of_one_explicit_id_would_be_mixed_and_one_that_is_repeated_too(tasks: Write) -> None:
    rows = tasks({"_ng_rollout_id": "a"}, {"_ng_rollout_id": "a"}, {"_ng_rollout_id": "b"})
    first, second, third = found(rows)
    assert ((0, 0), (2, 0)) == (first, third)
    assert "the same _ng_rollout_id, 'a'" in second.reason
    assert all("cannot be repeated" in bad.reason for bad in found(rows, repeats=2))


def test_what_is_posted_keeps_every_byte_but_the_indices(tasks: Write) -> None:
    line = '{"prompt": "\\u00e9", "seed": 12345678901234567890123, "p": 1.50, "_ng_attempt_index": 2}'
    [run] = runs(tasks(line))
    assert isinstance(run, Run)
    assert 2 == run.first_attempt
    row, body = run.body(3)
    assert line.replace("2}", '3,"_ng_task_index":0,"_ng_rollout_index":0}') == body.decode()
    assert json.loads(body) == row


def test_the_first_attempt_has_no_index(tasks: Write) -> None:
    [run] = runs(tasks({"x": 1}))
    assert isinstance(run, Run)
    assert b'{"x": 1,"_ng_task_index":0,"_ng_rollout_index":0}' == run.body(0)[1]
