"""The demo runs as a user runs it, and says so when a record is missing."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from demo import collecting, traces
from demo.report import pretty, shortfalls, table
from demo.rollouts import ROLLOUTS
from otel_gym.trace_ids import rollout_trace
from otel_gym_jsonl import CaptureStore

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.servers
def test_the_demo_finds_every_record_twice_in_a_row_and_keeps_the_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demo", "--out", str(tmp_path)]
    runs = [subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120) for _ in range(2)]
    assert [("", 0)] * 2 == [(done.stderr, done.returncode) for done in runs], runs
    store = CaptureStore(tmp_path / "model-calls")
    assert [*(rollout.id for rollout in ROLLOUTS), collecting.ROLLOUT] == list(store.rollout_ids())
    [row] = (tmp_path / "rollouts.jsonl").read_text().splitlines()
    assert 6 == len(json.loads(row)["ng_model_call_capture"]["calls"]) == len(store.read(collecting.ROLLOUT))
    for rollout in ROLLOUTS:
        assert str(store.path_for(rollout.id)) in runs[1].stdout
        assert list(rollout.categories) == [record["error_category"] for record in store.read(rollout.id)]


def test_a_jaeger_on_the_standard_port_is_found_and_its_page_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as standing_in:
        standing_in.bind(("127.0.0.1", 0))
        monkeypatch.setattr(traces, "OTLP_PORT", standing_in.getsockname()[1])
        assert {} == traces.destination()
        standing_in.listen()
        assert f"http://127.0.0.1:{traces.OTLP_PORT}" == traces.destination()["OTEL_EXPORTER_OTLP_ENDPOINT"]
    trace = f"{rollout_trace('r', '0-0').trace_id:032x}"
    assert f"http://127.0.0.1:16686/trace/{trace}" == traces.trace_address("r", "0-0")


def test_a_missing_record_is_a_shortfall(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    rollout = ROLLOUTS[0]
    calls = [("responses", 200, None)] * 3
    assert [
        f"rollout {rollout.id}: model_call_capture_no_records",
        f"rollout {rollout.id}: expected calls (dialect, status, category) {calls}, found []",
    ] == shortfalls(store, rollout)


def test_a_marked_rollout_is_a_shortfall(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    store.marker_for(ROLLOUTS[0].id).touch()
    assert f"rollout {ROLLOUTS[0].id}: model_call_capture_incomplete" in shortfalls(store, ROLLOUTS[0])


def test_a_table_puts_words_to_the_left_and_numbers_to_the_right() -> None:
    rows = [["a", "1"], ["bcd", "22"]]
    assert ["word   n", "a      1", "bcd   22"] == list(table(("word", "n"), rows, {"word"}))


def test_what_fits_on_a_line_stays_on_one_and_long_texts_are_cut() -> None:
    value = {"short": [1, 2], "long": "x" * 100, "list": [{"k": "v" * 60}, {"k": "v" * 60}]}
    cut = "x" * 70 + "… (100 characters)"
    item = '{"k": "' + "v" * 60 + '"}'
    expected = f'{{\n  "short": [1, 2],\n  "long": "{cut}",\n  "list": [\n    {item},\n    {item}\n  ]\n}}'
    assert expected == pretty(value)
