"""Limits of a process: descriptors, threads, memory."""

from __future__ import annotations

import errno
import gzip
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from tests.faults.conftest import Start
from tests.faults.processes import asked, eventually, served

MEGABYTE = 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("from_the_start", [True, False])
def test_a_thousand_rollouts_at_once_with_256_descriptors(start: Start, from_the_start: bool) -> None:
    child = start(descriptors=256 if from_the_start else None)
    child.do("limit", what="RLIMIT_NOFILE", soft=256)
    for turn in range(2):
        child.serve(*(asked(f"r{number}", turn) for number in range(1000)))
    assert [["0", "1"]] * 1000 == [child.uniques(f"r{number}") for number in range(1000)]
    assert [] == child.errors()
    assert child.do("descriptors") < 256
    child.do("close")
    assert eventually(lambda: child.do("descriptors") < 32)


@pytest.mark.slow
def test_a_thousand_rollouts_on_a_slow_disk_stay_within_256_descriptors(start: Start, disk_faults: Path) -> None:
    child = start(library=disk_faults, descriptors=256)
    child.disk("fsync capture.jsonl hang 150 0 -1", "fsync . hang 150 0 -1")
    child.serve(*(asked(f"r{number}", 1) for number in range(1000)))
    assert [["1"]] * 1000 == [child.uniques(f"r{number}") for number in range(1000)]
    assert [] == child.errors()


def test_who_finds_no_descriptor_waits_for_those_of_other_files(start: Start, disk_faults: Path) -> None:
    child = start(library=disk_faults)
    child.disk("fsync a.capture.jsonl hang 1000 0 1", f"open b.capture.jsonl fail {errno.EMFILE} 0 12")
    busy = child.begin("calls", calls=[asked("a", 1)])
    path = child.store.path_for("a")
    assert eventually(lambda: path.exists() and path.read_bytes().endswith(b"\n"))
    child.serve(asked("b", 1))
    served(busy)
    assert (["1"], False, []) == (child.uniques("b"), child.is_marked("b"), child.errors())


def test_without_a_descriptor_left_the_answer_goes_and_the_rollout_is_marked_later(start: Start) -> None:
    child = start()
    child.serve(asked("a", 1))
    child.do("limit", what="RLIMIT_NOFILE", soft=child.do("descriptors") - 1)
    child.serve(asked("new", 1))
    child.do("limit", what="RLIMIT_NOFILE", soft=256)
    assert eventually(lambda: child.is_marked("new"))
    child.serve(asked("new", 2), asked("a", 2))
    assert (["2"], ["1", "2"], False) == (child.uniques("new"), child.uniques("a"), child.is_marked("a"))


@pytest.mark.platform_only
def test_without_a_thread_left_the_answer_goes_and_the_rollout_is_marked_later(
    start: Start, open_directory: Path
) -> None:
    child = start(open_directory)
    child.do("become_nobody")
    if os.getuid() != 0:
        pytest.skip("other processes of this user count against its limit")
    child.do("limit", what="RLIMIT_NPROC", soft=1)
    child.serve(asked("a", 1))
    assert not child.is_marked("a")
    child.do("limit", what="RLIMIT_NPROC", soft=-1)
    child.serve(asked("a", 2))
    assert eventually(lambda: child.is_marked("a"))
    assert ["2"] == child.uniques("a")


def test_a_huge_body_is_not_kept_and_its_rollout_marked(start: Start) -> None:
    child = start(body_limit_bytes=MEGABYTE)
    child.serve(asked("b", 1))
    before = child.do("memory")
    assert child.do("post", rollout="a", body=256 * MEGABYTE, encoding="", data="")
    [record] = child.store.read("a")
    assert (None, {}, True) == (record["request"], record["response"], child.is_marked("a"))
    assert "request_raw" not in record
    assert child.do("memory") - before < 8 * MEGABYTE
    child.serve(asked("a", 2))
    assert (2, False) == (len(child.store.read("a")), child.is_marked("b"))


def gzip_bomb() -> bytes:
    compressor = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    zeros = bytes(MEGABYTE)
    return b"".join([*(compressor.compress(zeros) for _ in range(512)), compressor.flush()])


def zstd_bomb() -> bytes:
    compressor = zstandard.ZstdCompressor().compressobj()
    zeros = bytes(MEGABYTE)
    return b"".join([*(compressor.compress(zeros) for _ in range(1024)), compressor.flush()])


BOMBS: dict[str, Callable[[], bytes]] = {
    "gzip": gzip_bomb,
    "zstd": zstd_bomb,
    "gzip, gzip": lambda: gzip.compress(gzip_bomb()),
    "zstd, gzip": lambda: gzip.compress(zstd_bomb()),
}


@pytest.mark.parametrize("encoding", BOMBS)
def test_a_bomb_costs_no_more_than_the_limit_of_a_body(start: Start, encoding: str) -> None:
    child = start(body_limit_bytes=16 * MEGABYTE)
    child.serve(asked("b", 1))
    before = child.do("memory")
    assert child.do("post", rollout="a", body=0, encoding=encoding, data=BOMBS[encoding]().hex())
    [record] = child.store.read("a")
    assert (None, True) == (record["request"], child.is_marked("a"))
    assert child.do("memory") - before < 3 * 16 * MEGABYTE
