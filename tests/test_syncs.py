"""fsync of many files at once, by the real kernel: each file's outcome is that of `os.fsync`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gym_jsonl import syncs as module
from otel_gym_jsonl.syncs import Syncs, open_syncs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux's own")

PULSE = 5.0


@pytest.fixture
def syncs() -> Iterator[Syncs]:
    made = Syncs(8)
    yield made
    made.close()


def files(directory: Path, count: int) -> list[int]:
    """Descriptors of files with something to sync; the caller closes them."""
    descriptors = [os.open(directory / str(number), os.O_RDWR | os.O_CREAT) for number in range(count)]
    for descriptor in descriptors:
        os.write(descriptor, b"not yet on disk")
    return descriptors


def outcomes(syncs: Syncs, descriptors: list[int]) -> dict[int, int | None]:
    """The errno of each, None where it is durable."""
    news = [one for one in syncs.run(descriptors, PULSE) if one is not None]
    assert len(news) == len(descriptors)
    return {descriptor: error.errno if error else None for descriptor, error in news}


def of_fsync(descriptor: int) -> int | None:
    try:
        os.fsync(descriptor)
    except OSError as exc:
        return exc.errno
    return None


@pytest.mark.parametrize("count", [1, 2, 8, 21])
def test_every_file_is_told_of_once_be_they_more_than_go_at_once(syncs: Syncs, tmp_path: Path, count: int) -> None:
    descriptors = files(tmp_path, count)
    for _ in range(3):
        assert dict.fromkeys(descriptors) == outcomes(syncs, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)


@pytest.mark.parametrize("position", range(4))
def test_what_cannot_be_synced_fails_alone_and_as_fsync_does(syncs: Syncs, tmp_path: Path, position: int) -> None:
    good = files(tmp_path, 3)
    pipe = os.pipe()
    closed = os.dup(good[0])
    os.close(closed)
    directory = os.open(tmp_path, os.O_RDONLY)
    for bad in (*pipe, closed, directory):
        mixed = [*good[:position], bad, *good[position:]]
        assert {one: of_fsync(one) for one in mixed} == outcomes(syncs, mixed)
    for descriptor in (*good, *pipe, directory):
        os.close(descriptor)


def test_none_of_no_files(syncs: Syncs) -> None:
    assert {} == outcomes(syncs, [])


def test_what_is_closed_is_given_back_to_the_system() -> None:
    def rings() -> int:
        return Path("/proc/self/maps").read_text().count("/[aio]")

    before = rings()
    made = [Syncs(16) for _ in range(3)]
    assert before + 3 == rings()
    for syncs in made:
        syncs.close()
    assert before == rings()


def test_a_system_without_it_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_NUMBERS", {})
    module._system.cache_clear()
    try:
        assert open_syncs(8) is None
    finally:
        module._system.cache_clear()


def test_a_kernel_that_does_not_know_it_yet_is_asked_for_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, syncs: Syncs, tmp_path: Path
) -> None:
    descriptors = files(tmp_path, 4)
    monkeypatch.setattr(module, "_FSYNC", 63)  # no command of any kernel: refused as fsync is before 4.18
    assert dict.fromkeys(descriptors) == outcomes(syncs, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)


def test_a_wait_that_the_system_refuses_costs_no_file_its_sync(
    monkeypatch: pytest.MonkeyPatch, syncs: Syncs, tmp_path: Path
) -> None:
    descriptors = files(tmp_path, 4)
    monkeypatch.setattr(syncs, "_get_events", 10**6)  # no call of any kernel
    for _ in range(2):
        assert dict.fromkeys(descriptors) == outcomes(syncs, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
