"""What `import otel_gym` costs a process."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.bench import Bench, Check, Outcome

LIMIT_MS = 150.0
TIMED = "import time; began = time.perf_counter(); {}; print(time.perf_counter() - began)"


def run(bench: Bench) -> Outcome:
    """Median of several processes."""
    bare = _median_ms("import otel_gym", bench.times(9))
    edge = _median_ms("from otel_gym import CaptureMiddleware, Settings", bench.times(9))
    note = f"imports: with CaptureMiddleware and Settings {edge:.0f} ms"
    return Outcome(checks=(Check("import", "import otel_gym", bare, LIMIT_MS, "ms"),), notes=(note,))


def _median_ms(statement: str, times: int) -> float:
    command = [sys.executable, "-c", TIMED.format(statement)]
    runs = [subprocess.run(command, capture_output=True, check=True, text=True) for _ in range(times)]
    return 1e3 * statistics.median(float(done.stdout) for done in runs)
