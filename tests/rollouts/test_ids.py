from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import pytest
from pydantic import BaseModel, ConfigDict, Field

from otel_gym.errors import InvalidRolloutIdError
from otel_gym.rollouts.ids import (
    apply_rollout_prefix,
    clear_rollouts,
    maybe_rollout_id_from_run_body,
    rollout_path_prefix,
)

PAIR = {"_ng_task_index": 3, "_ng_rollout_index": 1}


@pytest.mark.parametrize(
    ("body", "rollout_id"),
    [
        (PAIR, "3-1"),
        ({"_ng_task_index": 0, "_ng_rollout_index": 0}, "0-0"),
        (PAIR | {"_ng_attempt_index": 0}, "3-1"),
        (PAIR | {"_ng_attempt_index": 2}, "3-1-a2"),
        (PAIR | {"_ng_attempt_index": -1}, "3-1"),
        (PAIR | {"_ng_attempt_index": True}, "3-1"),
        (PAIR | {"_ng_attempt_index": "2"}, "3-1"),
        (PAIR | {"_ng_attempt_index": 1.9}, "3-1"),
        (PAIR | {"_ng_rollout_id": "run.A_b-9"}, "run.A_b-9"),
        (PAIR | {"_ng_rollout_id": None}, "3-1"),
        ({"_ng_rollout_id": "e", "_ng_attempt_index": 1}, "e-a1"),
        ({"_ng_rollout_id": "e", "_ng_attempt_index": "1"}, "e"),
        ({"_ng_task_index": 3}, None),
        ({"_ng_rollout_index": 1}, None),
        (PAIR | {"_ng_task_index": -1}, None),
        (PAIR | {"_ng_task_index": True}, None),
        (PAIR | {"_ng_rollout_index": 1.0}, None),
        (PAIR | {"_ng_rollout_index": "1"}, None),
        ({}, None),
        (None, None),
        ([], None),
        ("text", None),
    ],
)
def test_a_run_body_names_its_rollout(body: Mapping[str, Any], rollout_id: str | None) -> None:
    assert rollout_id == maybe_rollout_id_from_run_body(body)


@pytest.mark.parametrize("explicit", ["", ".a", "-a", "_a", "a/b", "../a", "a b", "a\n", "\na", "ä", "\uff11", 5, True])
def test_an_explicit_id_that_could_not_be_a_path_segment_is_refused(explicit: object) -> None:
    with pytest.raises(InvalidRolloutIdError):
        maybe_rollout_id_from_run_body(PAIR | {"_ng_rollout_id": explicit})


class AliasedRow(BaseModel):
    task: int = Field(alias="_ng_task_index")
    rollout: int = Field(validation_alias="_ng_rollout_index")


class OpenRow(BaseModel):
    model_config = ConfigDict(extra="allow")


class RowThatKnows(OpenRow):
    knows: str | None

    def capture_rollout_id(self) -> str | None:
        return self.knows


@pytest.mark.parametrize(
    ("body", "rollout_id"),
    [
        (AliasedRow.model_validate(PAIR), "3-1"),
        (OpenRow.model_validate(PAIR | {"_ng_attempt_index": 2}), "3-1-a2"),
        (OpenRow(), None),
        (RowThatKnows.model_validate(PAIR | {"_ng_attempt_index": 2, "knows": "its-own"}), "its-own"),
        (RowThatKnows.model_validate(PAIR | {"knows": None}), "3-1"),
    ],
)
def test_a_pydantic_model_names_its_rollout_like_a_mapping(body: BaseModel, rollout_id: str | None) -> None:
    assert rollout_id == maybe_rollout_id_from_run_body(body)


def test_an_id_that_a_model_offers_is_checked_too() -> None:
    with pytest.raises(InvalidRolloutIdError):
        maybe_rollout_id_from_run_body(RowThatKnows(knows="../etc"))


@pytest.mark.parametrize(
    ("rollout_id", "token_capture", "prefix"),
    [
        ("3-1", False, "/ng-rollout/3-1"),
        ("3-1", True, "/ng-rollout/3-1/training-token-capture"),
        (None, True, ""),
        ("", False, ""),
    ],
)
def test_the_prefix_holds_the_id_and_the_training_segment(
    rollout_id: str | None, token_capture: bool, prefix: str
) -> None:
    assert prefix == rollout_path_prefix(rollout_id, token_capture)


@pytest.mark.parametrize(
    ("base_url", "rollout_id", "url"),
    [
        ("http://h:1", "3-1", "http://h:1/ng-rollout/3-1"),
        ("http://h:1//", "3-1", "http://h:1/ng-rollout/3-1"),
        ("https://h:1/path/", "3-1", "https://h:1/path/ng-rollout/3-1"),
        ("", "3-1", "/ng-rollout/3-1"),
        ("http://h:1/", None, "http://h:1/"),
    ],
)
def test_the_prefix_goes_behind_the_base_url(base_url: str, rollout_id: str | None, url: str) -> None:
    assert url == apply_rollout_prefix(base_url, rollout_id)


def test_exactly_the_attempts_about_to_run_are_cleared(tmp_path: Path) -> None:
    for name in ("1-0", "1-0-a1", "1-0-a11", "1-1", "2-0", "named"):
        (tmp_path / f"{name}.capture.jsonl").write_bytes(b"{}\n")
        (tmp_path / f"{name}.capture.incomplete").touch()
    clear_rollouts(
        [
            {"_ng_task_index": 1, "_ng_rollout_index": 0, "_ng_attempt_index": 1},
            {"_ng_task_index": 7, "_ng_rollout_index": 7},
            {"_ng_rollout_id": "named"},
            {},
        ],
        [tmp_path],
    )
    left = ("1-0", "1-0-a11", "1-1", "2-0")
    assert sorted(f"{name}.capture.{end}" for name in left for end in ("jsonl", "incomplete")) == sorted(
        path.name for path in tmp_path.iterdir()
    )


def test_a_row_whose_id_cannot_be_used_costs_only_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "1-0.capture.jsonl").write_bytes(b"{}\n")
    rows = [
        {"_ng_rollout_id": "../1-0"},
        {"_ng_rollout_id": "x" * 300},
        {"_ng_task_index": "a b", "_ng_rollout_index": 0},
        {"_ng_task_index": 1, "_ng_rollout_index": 0},
    ]
    clear_rollouts(rows, [tmp_path])
    assert [] == list(tmp_path.iterdir())
    refused = [arg.rollout_id for record in caplog.records for arg in record.args or () if is_refusal(arg)]
    assert ["../1-0", "x" * 300] == refused


def is_refusal(arg: object) -> TypeGuard[InvalidRolloutIdError]:
    return isinstance(arg, InvalidRolloutIdError)


def test_every_directory_is_cleared(tmp_path: Path) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]
    for directory in directories:
        directory.mkdir()
        (directory / "1-0.capture.jsonl").write_bytes(b"{}\n")
    clear_rollouts([{"_ng_task_index": 1, "_ng_rollout_index": 0}], directories)
    assert [] == [path for directory in directories for path in directory.iterdir()]
