"""The bench works. What it measures is no test's business."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import backend_faults, bodies
from benchmarks.__main__ import RUNS, main
from benchmarks.bench import Bench, Check, MissingRecordsError, captured_lines
from benchmarks.disk import append
from benchmarks.exchange import Exchange
from benchmarks.meters import percentile

ROOT = Path(__file__).resolve().parent.parent
BODIES = [
    (bodies.small(), 8_192, 4_096, 1),
    (bodies.long_conversation(), 409_600, 20_480, 1),
    (bodies.huge_request(), 16_777_216, 4_096, 1),
]


@pytest.mark.servers
def test_the_bench_runs_every_scenario_and_writes_its_figures(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks", "--scale", "0.005"]
    command += ["--directory", str(tmp_path / "disk"), "--json", str(figures)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(figures.read_text())["outcomes"]
    assert list(RUNS) == list(outcomes)
    assert [] == [name for name, outcome in outcomes.items() if not outcome["checks"] and not outcome["notes"]]
    assert [] == list((tmp_path / "disk").iterdir())


@pytest.mark.servers
def test_spans_to_backends_at_fault_are_accounted_for_to_the_last(tmp_path: Path) -> None:
    outcome = asyncio.run(backend_faults.run(Bench(tmp_path, 0.02)))
    exact = [check for check in outcome.checks if check.unit != "%"]
    assert (18, []) == (len(exact), [check for check in exact if not check.ok])


def test_only_what_is_named_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "a", "--scale", "0.01", "--directory", str(tmp_path)]) == 0
    table = capsys.readouterr().out
    assert "8 KB → 4 KB, one client" in table
    assert "added p50" in table
    assert "16 MB" not in table


def test_an_unknown_scenario_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--only", "a,z"])
    assert refused.value.code == 2
    assert "no such scenario: z; there are a, b, c" in capsys.readouterr().err


@pytest.mark.parametrize(("exchange", "request_size", "response_size", "pieces"), BODIES, ids=["a", "b", "h"])
def test_bodies_have_exactly_their_sizes(
    exchange: Exchange, request_size: int, response_size: int, pieces: int
) -> None:
    assert (request_size, response_size, pieces) == (
        len(exchange.request),
        exchange.response_size,
        len(exchange.pieces),
    )
    json.loads(exchange.request)


def test_a_chat_stream_has_its_chunks_and_an_end() -> None:
    pieces = bodies.chat_stream(500).pieces
    assert (501, b"data: [DONE]\n\n") == (len(pieces), pieces[-1])


def test_a_large_event_has_exactly_its_size_and_comes_in_pieces_of_4_kib() -> None:
    pieces = bodies.one_large_event(bodies.MIB).pieces
    wire = b"".join(pieces)
    assert bodies.MIB == len(wire) - wire.index(b"event: response.completed")
    assert {4096} == {len(piece) for piece in pieces[:-1]}


def test_a_body_that_cannot_be_so_small_is_refused() -> None:
    with pytest.raises(ValueError, match="10 bytes are too few"):
        bodies.completion(10)


def test_calls_without_records_end_the_bench(tmp_path: Path) -> None:
    append(tmp_path / "a-0.capture.jsonl", b"{}\n")
    assert [("a-0.capture.jsonl", b"{}\n")] == captured_lines(tmp_path, "a-0", 1)
    with pytest.raises(MissingRecordsError, match="2 calls left 1 records and 0 marks"):
        captured_lines(tmp_path, "a-0", 2)
    (tmp_path / "a-0.capture.incomplete").touch()
    with pytest.raises(MissingRecordsError, match="1 calls left 1 records and 1 marks"):
        captured_lines(tmp_path, "a-0", 1)


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [1.0, 50.0, 99.0, 100.0] == [percentile(values, percent) for percent in (0, 50, 99, 100)]
    assert percentile([7.0], 99) == 7.0


VERDICTS = [(1, False, True), (3, False, False), (1, True, False), (3, True, True)]


@pytest.mark.parametrize(("value", "at_least", "ok"), VERDICTS)
def test_a_limit_is_a_ceiling_or_a_floor(value: float, at_least: bool, ok: bool) -> None:
    assert Check("a", "figure", value, 2, "ms", at_least).ok is ok
