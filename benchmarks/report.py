"""The figures for a person: a table of the comparisons, the notes, and every target with what was got."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from importlib.metadata import version
from pathlib import Path

from benchmarks.bench import Check, Comparison

HEAD = (
    ("", "", "p50 ms", "", "", "calls/s", "", "CPU ms a call", "", "lag p99 ms", "", "lag worst ms", "", "disk", ""),
    ("", "", *("bare", "captured", "added"), *("bare", "captured") * 4, "p50 ms", "lines/s of 6"),
)


def machine(directory: Path) -> str:
    """Where the figures come from, on one line."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"otel-gym {version('otel-gym')}, Python {platform.python_version()}, {os.cpu_count()} CPUs, "
        f"load {load}, disk {_file_system(directory)}"
    )


def comparison_lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """The table: a row for each scenario."""
    return _table([*HEAD, *(_row(comparison) for comparison in comparisons)])


def check_lines(checks: Sequence[Check]) -> Iterator[str]:
    """Every figure that has a target, with the target and the verdict."""
    rows = [("", "target", "got", "", "limit", "")]
    for check in checks:
        sign = "≥" if check.at_least else "≤"
        limit = f"{sign} {check.limit:,.2f} {check.unit}"
        verdict = "ok" if check.ok else "MISS"
        rows.append((check.scenario, check.what, f"{check.value:,.2f}", check.unit, limit, verdict))
    return _table(rows, left={0, 1, 3, 4, 5})


def _row(found: Comparison) -> tuple[str, ...]:
    bare, captured = found.bare, found.captured
    disk = (f"{found.disk.p50_ms:.2f}", f"{found.disk.pool_lines_per_s:,.0f}") if found.disk else ("", "")
    return (
        found.scenario,
        found.title,
        f"{bare.p50_ms:.2f}",
        f"{captured.p50_ms:.2f}",
        f"{found.added_p50_ms:.2f}",
        f"{bare.calls_per_s:,.0f}",
        f"{captured.calls_per_s:,.0f}",
        f"{bare.cpu_ms:.2f}",
        f"{captured.cpu_ms:.2f}",
        f"{bare.lag_p99_ms:.1f}",
        f"{captured.lag_p99_ms:.1f}",
        f"{bare.lag_worst_ms:.1f}",
        f"{captured.lag_worst_ms:.1f}",
        *disk,
    )


def _table(rows: Sequence[Sequence[str]], left: AbstractSet[int] = frozenset({0, 1})) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def _file_system(directory: Path) -> str:
    """Type of the file system of a directory: that of the longest mount point above it."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except FileNotFoundError:
        return "unknown"
    above = [(len(point), kind) for point, kind in mounts if directory.resolve().is_relative_to(point)]
    return max(above)[1] if above else "unknown"
