from __future__ import annotations

import json
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from otel_gym.rollouts import TrajectoryRecord, raw_rows
from otel_gym.rollouts.attachment import ATTACHED_KEYS
from otel_gym.rollouts.perf import RolloutPerf
from otel_gym.rollouts.row_files import Damage, Totals, attach_file
from tests.sample_records import capture, record

# Numbers that an ordinary reader and writer of JSON would change, or could not read at all.
REST = (
    '"reward": 1.50, "log_probs": [-0.10000000000000000555, -1E-7, NaN, -Infinity, 1e400], "token_ids": [1, 2,3],'
    ' "seed": 123456789012345678901234567890, "response": {"b": 1, "a": "\\u00e4\\ud800\\/", "a": 2.0}'
)


def run(source: Path, target: Path, directory: Path) -> tuple[list[Damage], Totals]:
    totals = Totals()
    return list(attach_file(source, target, [directory], totals)), totals


def line(number: int, more: str = "") -> str:
    return f'{{"_ng_task_index": {number}, "_ng_rollout_index":0, {REST}{more} }}'


def test_every_byte_of_a_row_but_the_attachment_stays(tmp_path: Path) -> None:
    stored = record()
    capture(tmp_path, "0-0", stored)
    reported = {
        "source": "test",
        "records": [
            {
                "kind": "agent_invocation",
                "invocation_id": "main",
                "model_calls": [{"model_call_id": stored["model_call_id"]}],
            }
        ],
    }
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    head = f'{{"_ng_task_index": 0, "_ng_rollout_index":0, "ng_perf": {{"total_latency_ms": 7}}, {REST}, '
    source.write_text(head + f'"ng_agent_observations" : {json.dumps(reported)} , "last":1.0 }}\r\n')
    damages, totals = run(source, target, tmp_path)
    assert ([], 1, 1, True) == (damages, totals.attached, totals.calls, totals.complete)

    written = target.read_bytes()
    row = raw_rows.parse(written)
    without = written
    for key in ATTACHED_KEYS:
        without = without.replace(raw_rows.encode(row[key]), b"null", 1)
    expected = head.replace('{"total_latency_ms": 7}', "null") + '"ng_agent_observations" : null , "last":1.0'
    expected += ',"ng_model_call_capture":null,"ng_trajectory":null }\r\n'
    assert expected.encode() == without
    TrajectoryRecord.model_validate(row["ng_trajectory"])
    assert RolloutPerf.model_validate(row["ng_perf"]).total_latency_ms == 7


DAMAGED = [
    (b'{"_ng_task_index": 1, "_ng_roll', "Unterminated string starting at character 23"),
    (b"\xff\xfe", "it begins with b'\\xff\\xfe"),
    (b'{"a": "\xff"}', "byte 8 is no UTF-8"),
    (b'{"_ng_task_index": 1}', "it names no rollout"),
    (b'{"_ng_rollout_id": "../x"}', "its rollout id is '../x'"),
    (b"[1]", "it begins with b'[1]', not with the '{' of a JSON object"),
]


@pytest.mark.parametrize(("damaged", "why"), DAMAGED)
def test_a_damaged_row_is_named_and_carried_over_unchanged(tmp_path: Path, damaged: bytes, why: str) -> None:
    capture(tmp_path, "0-0", record())
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [line(0).encode(), b"", damaged, line(0).encode()]
    source.write_bytes(b"\n".join(lines))
    (damage,), totals = run(source, target, tmp_path)
    assert (3, 2, 3) == (damage.line, totals.attached, totals.rows)
    assert damage.reason.startswith(why)
    first, blank, third, last = target.read_bytes().split(b"\n")
    assert (b"", damaged) == (blank, third)
    assert [1, 1] == [raw_rows.parse(text)["ng_model_call_capture"]["metrics"]["num_calls"] for text in (first, last)]


def test_gaps_are_counted_by_row(tmp_path: Path) -> None:
    capture(tmp_path, "0-0", record(), b"{oops\n", b"[]\n")
    (tmp_path / "0-0.capture.incomplete").touch()
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(map(line, range(3))))
    _, totals = run(source, tmp_path / "out.jsonl", tmp_path)
    expected = {
        "model_call_capture_records_unreadable": 1,
        "model_call_capture_incomplete": 1,
        "model_call_capture_no_records": 2,
    }
    assert (expected, False) == (dict(totals.gaps), totals.complete)


class BrokenError(Exception):
    pass


@pytest.mark.parametrize("way", ["an error", "left in the middle"])
def test_the_output_appears_whole_or_not_at_all(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(f"{line(0)}\nbroken\n{line(1)}\n")
    target.write_text("as it was")
    names = sorted(path.name for path in tmp_path.iterdir())
    rows = attach_file(source, target, [tmp_path], Totals())
    assert next(rows).line == 2
    assert target.read_text() == "as it was"
    if way == "an error":
        monkeypatch.setattr("otel_gym.rollouts.row_files.attach", lambda *a, **k: (_ for _ in ()).throw(BrokenError))
        with pytest.raises(BrokenError):
            next(rows)
    else:
        rows.close()
    assert ("as it was", names) == (target.read_text(), sorted(path.name for path in tmp_path.iterdir()))


def test_an_attached_file_can_be_attached_again(tmp_path: Path) -> None:
    capture(tmp_path, "0-0", record(), record())
    source, once, twice = (tmp_path / name for name in ("in.jsonl", "once.jsonl", "twice.jsonl"))
    source.write_text(line(0))
    run(source, once, tmp_path)
    run(once, twice, tmp_path)
    first, second = (raw_rows.parse(path.read_bytes()) for path in (once, twice))
    calls: list[Any] = [row["ng_trajectory"]["model_calls"] for row in (first, second)]
    assert calls[0] == calls[1]
    assert first["ng_model_call_capture"] == second["ng_model_call_capture"]


def test_memory_does_not_grow_with_the_number_of_rows(tmp_path: Path) -> None:
    for number in range(400):
        capture(tmp_path, f"{number}-0", record(), record())
    peaks = []
    for rows in (40, 40, 400):  # the first run also pays for what is made once
        source = tmp_path / f"{rows}.jsonl"
        source.write_text("\n".join(map(line, range(rows))))
        tracemalloc.start()
        run(source, tmp_path / "out.jsonl", tmp_path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.5 * peaks[1]


@pytest.mark.servers
def test_a_killed_command_leaves_no_output(tmp_path: Path) -> None:
    capture(tmp_path, "0-0", *[record() for _ in range(200)])
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(f"{line(0)}\n" * 2000)
    command = [sys.executable, "-m", "otel_gym", "attach", str(source)]
    command += ["--capture-dir", str(tmp_path), "-o", str(target)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        give_up = time.monotonic() + 60
        while not list(tmp_path.glob(".out.jsonl.*")) and time.monotonic() < give_up:
            time.sleep(0.01)
        child.kill()
    assert (-9, False) == (child.returncode, target.exists())
