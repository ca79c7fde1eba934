from __future__ import annotations

from pathlib import Path

import pytest

from otel_gym.collect.attempts import Attempts


def test_an_attempt_that_began_is_remembered_by_the_next_process(tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    attempts = Attempts(output)
    assert -1 == attempts.highest
    attempts.begin(0)
    attempts.begin(2)
    attempts.begin(1)
    assert 2 == Attempts(output).highest
    attempts.forget()
    assert (-1, -1) == (attempts.highest, Attempts(output).highest)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"highest_attempt": "1"}'])
def test_a_spoiled_file_knows_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / ".rows.jsonl.collect.json").write_text(text)
    assert -1 == Attempts(tmp_path / "rows.jsonl").highest
