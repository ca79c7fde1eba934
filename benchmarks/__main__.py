"""`python -m benchmarks [--only a,e] [--json FILE]`: run the bench and print its table."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import (
    attaching,
    backend_faults,
    collecting,
    gateway,
    imports,
    memory,
    mirrored,
    scenarios,
    served,
    staging,
)
from benchmarks.bench import Bench, Outcome
from benchmarks.report import check_lines, comparison_lines, machine

ROOT = Path(__file__).resolve().parent.parent


def _in_process(run: Callable[[Bench], Coroutine[Any, Any, Outcome]]) -> Callable[[Bench], Outcome]:
    return lambda bench: asyncio.run(run(bench))


RUNS: dict[str, Callable[[Bench], Outcome]] = {
    **{name: _in_process(partial(scenarios.run, name=name)) for name in scenarios.SCENARIOS},
    "g": _in_process(scenarios.run_large_event),
    "h": _in_process(memory.run_peak),
    "memory": memory.run_growth,
    **{f"mirror-{name}": _in_process(partial(mirrored.run, name=name)) for name in mirrored.SCENARIOS},
    "mirror-faults": _in_process(backend_faults.run),
    **{f"uvicorn-{name}": _in_process(partial(served.run, name=name)) for name in served.EXCHANGES},
    "attach": attaching.run,
    "collect": _in_process(collecting.run),
    "staging": staging.run,
    "gateway": gateway.run,
    "import": imports.run,
}


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; 0 whether or not the targets are met, as figures of a busy machine prove nothing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", metavar="NAMES", help=f"comma-separated, of {', '.join(RUNS)}")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all figures there")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on counts and times (%(default)s)")
    parser.add_argument("--directory", type=Path, default=ROOT / ".bench", help="on the disk to measure (%(default)s)")
    options = parser.parse_args(arguments)
    names = options.only.split(",") if options.only else list(RUNS)
    if unknown := [name for name in names if name not in RUNS]:
        parser.error(f"no such scenario: {', '.join(unknown)}; there are {', '.join(RUNS)}")

    options.directory.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        bench = Bench(Path(folder).resolve(), options.scale)
        where = machine(bench.directory)
        print(where)
        for name in names:
            began = time.perf_counter()
            outcomes[name] = RUNS[name](bench)
            print(f"  {name} ({time.perf_counter() - began:.0f} s)", file=sys.stderr, flush=True)

    comparisons = [found for outcome in outcomes.values() for found in outcome.comparisons]
    checks = [check for outcome in outcomes.values() for check in outcome.checks]
    notes = [note for outcome in outcomes.values() for note in outcome.notes]
    parts = [
        list(comparison_lines(comparisons)) if comparisons else [],
        notes,
        list(check_lines(checks)) if checks else [],
    ]
    print("\n" + "\n\n".join("\n".join(part) for part in parts if part))
    if options.json:
        figures = {name: asdict(outcome) for name, outcome in outcomes.items()}
        options.json.write_text(json.dumps({"machine": where, "scale": options.scale, "outcomes": figures}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
