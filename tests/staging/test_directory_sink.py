from __future__ import annotations

import os
import subprocess
import sys
from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from otel_gym.errors import DamagedStagingError
from otel_gym.staging import Buffer, DirectorySink, RolloutTokenCapture, StagedCalls
from tests.staging.material import GENERATED, LOG_PROBS, PROMPT, root, staged_chain

ROOT = Path(__file__).parents[2]


def stage(directory: Path, call_id: str = "c0", rollout_id: str = "r", **more: Any) -> str:
    capture = RolloutTokenCapture(DirectorySink(directory), lambda: 1)
    call = capture.begin_call(root(rollout_id, call_id))
    return capture.complete_call(call, PROMPT, GENERATED, LOG_PROBS, **more).disposition


def test_a_chain_is_read_back_whole(tmp_path: Path) -> None:
    coordinates = staged_chain(3, DirectorySink(tmp_path), "7-0")
    calls = StagedCalls(tmp_path)
    assert (["7-0"], ["7-0/c0", "7-0/c1", "7-0/c2"]) == (calls.rollout_ids(), calls.staging_keys("7-0"))
    assert ["7-0/c0", "7-0/c1", "7-0/c2"] == [coords.staging_key for coords in coordinates]
    assert 12 == len(calls.token_ids(str(coords.staging_key) for coords in coordinates))
    assert coordinates[1].digest == calls.read("7-0/c1").record.digest


ATTACHMENTS: dict[str, Any] = {
    "pixels": array("f", [1.0, -2.5]),
    "grid": memoryview(bytes(range(6))).cast("B", (2, 3)),
    "every second byte": memoryview(b"abcdef")[::2],
    "nothing": array("d"),
    "raw": b"\x00\xff",
    "empty": b"",
    "spans": [{"start": 0, "end": 2.0, "of": None}],
    "../odd/name\n": "text",
}


def test_attachments_come_back_as_they_went(tmp_path: Path) -> None:
    assert "staged" == stage(tmp_path, attachments=ATTACHMENTS)
    found = StagedCalls(tmp_path).read("r/c0").attachments
    assert {
        "pixels": Buffer(array("f", [1.0, -2.5]).tobytes(), "f", (2,)),
        "grid": Buffer(bytes(range(6)), "B", (2, 3)),
        "every second byte": Buffer(b"ace", "B", (3,)),
        "nothing": Buffer(b"", "d", (0,)),
        "raw": b"\x00\xff",
        "empty": b"",
        "spans": [{"start": 0, "end": 2.0, "of": None}],
        "../odd/name\n": "text",
    } == found


@pytest.mark.parametrize("odd", [object(), (1,), {"x": object()}, float("nan"), 2**70])
def test_a_call_with_an_attachment_that_cannot_be_stored_is_refused_as_a_whole(odd: Any, tmp_path: Path) -> None:
    assert "capture_failed" == stage(tmp_path, attachments={"fine": b"1", "odd": odd})
    assert ([], []) == (StagedCalls(tmp_path).rollout_ids(), list((tmp_path / ".incoming").iterdir()))


@pytest.mark.parametrize("name", ["..", ".incoming", "a/b", "", "é", "-x", "x" * 300, "a\n", "a\0"])
def test_an_id_that_cannot_name_a_folder_is_refused(name: str, tmp_path: Path) -> None:
    if name:
        assert "capture_failed" == stage(tmp_path / "d", rollout_id=name)
        assert "capture_failed" == stage(tmp_path / "d", call_id=name)
    with pytest.raises(ValueError):
        StagedCalls(tmp_path / "d").staging_keys(name)
    with pytest.raises(ValueError):
        StagedCalls(tmp_path / "d").read(f"r/{name}")
    assert tmp_path / "d" / ".incoming" == next((tmp_path / "d").iterdir()) if name else True


def test_a_call_is_staged_once(tmp_path: Path) -> None:
    assert ["staged", "capture_failed"] == [stage(tmp_path, attachments={"n": n}) for n in range(2)]
    assert {"n": 0} == StagedCalls(tmp_path).read("r/c0").attachments
    assert [] == list((tmp_path / ".incoming").iterdir())


def test_of_many_that_stage_one_call_at_once_one_wins(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda n: stage(tmp_path, attachments={"n": n}), range(16)))
    assert 1 == outcomes.count("staged")
    assert {"n": outcomes.index("staged")} == StagedCalls(tmp_path).read("r/c0").attachments


def test_a_disk_that_refuses_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync
    for fails_at in range(5):
        left = [fails_at]

        def fsync(descriptor: int, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                raise OSError(5, "Input/output error")
            real(descriptor)

        sink = DirectorySink(tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fsync)
            capture = RolloutTokenCapture(sink, lambda: 1)
            coords = capture.complete_call(capture.begin_call(root()), PROMPT, GENERATED, LOG_PROBS)
        assert "capture_failed" == coords.disposition
        assert ([], []) == (StagedCalls(tmp_path).staging_keys("r"), list((tmp_path / ".incoming").iterdir()))
    assert "staged" == stage(tmp_path)


@pytest.mark.parametrize("file", ["record.json", "attachments.json", "attachment-0", "attachment-1"])
@pytest.mark.parametrize("change", ["cut", "changed", "gone"])
def test_a_folder_that_was_changed_is_damaged(file: str, change: str, tmp_path: Path) -> None:
    stage(tmp_path, attachments={"a": b"1234", "b": {"x": [1, 2]}})
    path = tmp_path / "r" / "c0" / file
    data = path.read_bytes()
    if change == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-1] if change == "cut" else data.replace(b"1", b"7"))
    error = FileNotFoundError if (file, change) == ("record.json", "gone") else DamagedStagingError
    with pytest.raises(error):
        StagedCalls(tmp_path).read("r/c0")


def test_a_call_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    calls = StagedCalls(tmp_path / "missing")
    assert ([], []) == (calls.rollout_ids(), calls.staging_keys("r"))
    with pytest.raises(FileNotFoundError):
        calls.read("r/c0")


CHILD = """
import sys
from otel_gym.staging import DirectorySink, RolloutTokenCapture
from tests.staging.material import GENERATED, LOG_PROBS, PROMPT, root
capture = RolloutTokenCapture(DirectorySink(sys.argv[1]), lambda: 1)
for number in range(100000):
    call = capture.begin_call(root(f"{sys.argv[2]}-{number % 7}", f"c{number}"))
    pixels = {"pixels": bytes([number % 251]) * 50000, "grid": [number, 2, 3]}
    coords = capture.complete_call(call, PROMPT, GENERATED, LOG_PROBS, attachments=pixels)
    print(coords.staging_key, flush=True)
"""


@pytest.mark.slow
def test_a_killed_worker_leaves_whole_folders_and_every_one_that_it_answered_for(tmp_path: Path) -> None:
    acknowledged = set()
    for life in range(6):
        command = [sys.executable, "-c", CHILD, str(tmp_path), str(life)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            keys = [process.stdout.readline().strip() for _ in range(5 + 11 * life)]
            process.kill()
            # A last line may be cut by the kill: what was not answered as a whole was not answered.
            keys += [line.strip() for line in process.stdout if line.endswith("\n")]
        acknowledged.update(keys)
    calls = StagedCalls(tmp_path)
    found = {key for rollout_id in calls.rollout_ids() for key in calls.staging_keys(rollout_id)}
    for key in found:
        record, attachments = calls.read(key)
        number = int(record.model_call_id[1:])
        assert {"pixels": bytes([number % 251]) * 50000, "grid": [number, 2, 3]} == attachments
    assert acknowledged <= found
    assert len(found - acknowledged) <= 6
