"""What `otel-gym attach` costs: megabytes of capture files a second of one core, memory, and whether it is linear."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import bodies
from benchmarks.bench import Bench, Check, MissingRecordsError, Outcome
from benchmarks.meters import peak_mib

MB = 1e6
CALLS = 20
LONG_ROLLOUT = 5_000
LEAST_MB_PER_S = 150.0
MOST_MIB = 200.0
_TICK_S = 0.001  # a run shorter than the system's clock of CPU time may seem to need none
MOST_TIMES = 1.25  # cost of a call among ten times the rollouts, or in a rollout of four times the calls


@dataclass(frozen=True)
class Attached:
    """One run: seconds of CPU and of wall, bytes of capture files, calls, and the process's peak of memory."""

    user_s: float
    system_s: float
    wall_s: float
    size: int
    calls: int
    peak_mib: float

    @property
    def mb_per_s(self) -> float:
        """Of capture files, for each second of CPU."""
        return self.size / MB / (self.user_s + self.system_s)

    @property
    def us_per_call(self) -> float:
        """CPU of one call, ours: the system's part grows with what waits for the disk, for a plain copy as well."""
        return 1e6 * max(self.user_s, _TICK_S) / self.calls

    @property
    def system_us_per_call(self) -> float:
        """The system's part, for reading and writing."""
        return 1e6 * self.system_s / self.calls


def run(bench: Bench) -> Outcome:
    """1,000 and 10,000 rollouts of 20 calls (8 KB each), a rollout of 5,000 calls, and rows that have observations."""
    few = _attach(bench, rollouts=bench.times(1_000, least=2), calls=CALLS)
    many = _attach(bench, rollouts=bench.times(10_000, least=4), calls=CALLS)
    observed = _attach(bench, rollouts=bench.times(1_000, least=2), calls=CALLS, observed=True)
    quarter = _attach(bench, rollouts=1, calls=bench.times(LONG_ROLLOUT // 4, least=CALLS), observed=True)
    long = _attach(bench, rollouts=1, calls=bench.times(LONG_ROLLOUT, least=CALLS), observed=True)
    among_many = many.us_per_call / few.us_per_call
    in_one = long.us_per_call / quarter.us_per_call
    checks = (
        Check("attach", f"capture files, {many.calls:,} calls", many.mb_per_s, LEAST_MB_PER_S, "MB/s of a core", True),
        Check("attach", "peak memory", many.peak_mib, MOST_MIB, "MiB"),
        Check("attach", "a call among ten times the rollouts", among_many, MOST_TIMES, "times"),
        Check("attach", f"a call of {long.calls:,} in one rollout, to a quarter", in_one, MOST_TIMES, "times"),
    )
    return Outcome(
        checks=checks,
        notes=(
            _note("attach", many),
            _note("attach, rows with observations", observed),
            _note("attach, one rollout with observations", long),
        ),
    )


def _note(title: str, found: Attached) -> str:
    return (
        f"{title}: {found.calls:,} calls, {found.size / MB:,.0f} MB: {found.mb_per_s:,.0f} MB/s of a core, "
        f"{found.us_per_call:,.0f} µs a call and {found.system_us_per_call:,.0f} of the system, "
        f"{found.size / MB / found.wall_s:,.0f} MB/s on this disk, "
        f"peak {found.peak_mib:,.0f} MiB"
    )


def _attach(bench: Bench, rollouts: int, calls: int, *, observed: bool = False) -> Attached:
    """In a process of its own, so that its peak of memory is its own."""
    with bench.folder() as folder:
        size = sum(_write_capture(folder, number, calls) for number in range(rollouts))
        rows = folder / "rollouts.jsonl"
        with rows.open("wb") as file:
            for number in range(rollouts):
                file.write(bodies.dump(_row(number, calls if observed else 0)) + b"\n")
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            user_s, system_s, wall_s, attached, peak = pool.apply(_measured, (str(folder),))
        if attached != rollouts * calls:
            raise MissingRecordsError(f"{attached} of {rollouts * calls} calls were attached")
    return Attached(user_s, system_s, wall_s, size, attached, peak)


def _measured(folder: str) -> tuple[float, float, float, int, float]:
    from otel_gym.rollouts.row_files import Totals, attach_file

    path, totals = Path(folder), Totals()
    wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    for damage in attach_file(path / "rollouts.jsonl", path / "attached.jsonl", [path], totals):
        raise MissingRecordsError(str(damage))
    took, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime, took, totals.calls, peak_mib()


def _write_capture(folder: Path, rollout: int, calls: int) -> int:
    data = b"".join(itertools.islice(lines_of_calls(rollout), calls))
    return (folder / f"{rollout}-0.capture.jsonl").write_bytes(data)


def lines_of_calls(rollout: int) -> Iterator[bytes]:
    """Records of 8 KB: a request of 4 KB and an answer of 3.5 KB."""
    record: dict[str, Any] = {
        "model_call_id": "ID",
        "dialect": "chat",
        "model_ref": {"type": "responses_api_models", "name": "policy"},
        "started_at": 1764000001.0,
        "completed_at": 1764000002.5,
        "latency_ms": 1500.0,
        "latency_ttft_ms": 210.5,
        "status_code": 200,
        "error_category": None,
        "request": json.loads(bodies.chat_request(4_300)),
        "response": json.loads(bodies.completion(3_500)),
    }
    head, tail = bodies.dump(record).split(b'"ID"')
    for number in itertools.count():
        yield head + f'"{rollout:016x}{number:016x}"'.encode() + tail + b"\n"


def _row(number: int, observed_calls: int) -> dict[str, Any]:
    row: dict[str, Any] = {"_ng_task_index": number, "_ng_rollout_index": 0, "reward": 1.0, "response": {"output": []}}
    if observed_calls:
        references = [{"model_call_id": f"{number:016x}{call:016x}"} for call in range(observed_calls)]
        invocation = {"kind": "agent_invocation", "invocation_id": "main", "model_calls": references}
        row["ng_agent_observations"] = {"source": "bench", "records": [invocation]}
    return row
