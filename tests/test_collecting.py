"""A collection that runs is seen by its lock, and not disturbed."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from otel_gym import collecting
from otel_gym.collecting import COLLECT_LOCK_FILE, Collection, is_held


def test_a_directory_without_the_file_has_no_collection_and_gets_no_file(tmp_path: Path) -> None:
    assert not Collection(tmp_path).runs()
    assert [] == list(tmp_path.iterdir())


def test_a_file_that_nobody_holds_is_no_collection(tmp_path: Path) -> None:
    (tmp_path / COLLECT_LOCK_FILE).touch()
    assert not Collection(tmp_path).runs()


def test_a_held_file_is_a_collection_until_it_is_let_go(tmp_path: Path) -> None:
    with (tmp_path / COLLECT_LOCK_FILE).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_held(tmp_path / COLLECT_LOCK_FILE)
        assert is_held(tmp_path / COLLECT_LOCK_FILE)  # looking takes nothing away
    assert not is_held(tmp_path / COLLECT_LOCK_FILE)


def test_what_was_seen_counts_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collection = Collection(tmp_path)
    monkeypatch.setattr(collecting, "FRESH_SECONDS", 3600)
    assert not collection.runs()
    with (tmp_path / COLLECT_LOCK_FILE).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert not collection.runs()
        monkeypatch.setattr(collecting, "FRESH_SECONDS", 0)
        assert collection.runs()


def test_a_lock_that_cannot_be_looked_at_is_none(tmp_path: Path) -> None:
    (tmp_path / COLLECT_LOCK_FILE).symlink_to(tmp_path / "nowhere")
    assert not Collection(tmp_path).runs()
