"""The rollouts of a capture directory, as a table and as JSON (see `show`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from otel_gym.cli import FAILED
from otel_gym.cli.capture_directory import GAPS, Tally, rollout_ids, unattributed_calls, unattributed_words
from otel_gym.cli.json_output import print_json
from otel_gym.cli.terminal import Column, Output, Table, count, harmless, plural, seconds

_GAP_WORDS = {code: text.partition(":")[0] for code, text in GAPS.items()}

_ROLLOUTS = (
    Column("rollout", least=12),
    Column("calls", right=True),
    Column("in", right=True),
    Column("out", right=True),
    Column("cached", right=True),
    Column("time", right=True),
    Column("errors", right=True),
    Column("gaps", least=8),
)


def _tallies(directory: Path) -> Iterator[Tally]:
    for rollout_id in rollout_ids(directory):
        tally = Tally.of(directory, rollout_id)
        for _ in tally.calls():
            pass
        yield tally


class _Totals:
    def __init__(self) -> None:
        self.rollouts = 0
        self.calls = 0
        self.errors: dict[str, int] = {}
        self.gaps: dict[str, int] = {}

    def add(self, tally: Tally) -> list[dict[str, Any]]:
        """Count a rollout, and return its gaps."""
        self.rollouts += 1
        self.calls += tally.metrics.num_calls
        for category, number in tally.errors.items():
            self.errors[category] = self.errors.get(category, 0) + number
        gaps = tally.gaps()
        for gap in gaps:
            self.gaps[gap["code"]] = self.gaps.get(gap["code"], 0) + 1
        return gaps


def print_rollouts(directory: Path, output: Output) -> int:
    """Print the table of rollouts, what they add up to and what the gaps mean; return the exit code."""
    table = Table(output, _ROLLOUTS)
    totals = _Totals()
    for tally in _tallies(directory):
        gaps = totals.add(tally)
        sums = tally.metrics.totals()
        cells = (
            tally.rollout_id,
            str(tally.metrics.num_calls),
            count(sums["tokens_in"]),
            count(sums["tokens_out"]),
            count(sums["cached_tokens"]),
            seconds(sums["latency_total_ms"]),
            str(sum(tally.errors.values())),
            ", ".join(_gap_words(gap, tally) for gap in gaps),
        )
        table.row(cells, "red" if gaps else "yellow" if tally.errors else None)
    lost = unattributed_calls(directory)
    if not totals.rollouts:
        print(f"otel-gym show: no captured rollouts in {harmless(str(directory))}", file=sys.stderr)
        if lost:
            output.paragraph(f"{unattributed_words(lost)} while the last collection ran", indent="  ")
        return 0
    table.finish()
    output.line()
    what = f"{plural(totals.rollouts, 'rollout')}, {plural(totals.calls, 'call')}{_error_words(totals.errors)}"
    output.paragraph(what, indent="  ")
    for code, text in GAPS.items():
        if code in totals.gaps:
            output.paragraph(text, indent="  ")
    if lost:
        output.paragraph(f"{unattributed_words(lost)} while the last collection ran", indent="  ")
    return FAILED if totals.gaps else 0


def _gap_words(gap: dict[str, Any], tally: Tally) -> str:
    words = _GAP_WORDS[gap["code"]]
    return f"{tally.unreadable_lines} {words}" if gap.get("detail", "").startswith("count=") else words


def _error_words(errors: dict[str, int]) -> str:
    if not errors:
        return ""
    counts = sorted(errors.items(), key=lambda item: (-item[1], item[0]))
    return "; errors: " + ", ".join(f"{number:,} {harmless(category)}" for category, number in counts)


def print_rollouts_json(directory: Path) -> int:
    """Print the rollouts as one JSON object, and return the exit code."""
    totals = _Totals()

    def items() -> Iterator[dict[str, Any]]:
        for tally in _tallies(directory):
            yield {
                "rollout_id": tally.rollout_id,
                "file": tally.file,
                "metrics": tally.metrics.totals(),
                "errors": tally.errors,
                "gaps": totals.add(tally),
            }

    print_json(
        {"directory": str(directory)},
        "rollouts",
        items(),
        lambda: {
            "totals": {
                "rollouts": totals.rollouts,
                "calls": totals.calls,
                "errors": totals.errors,
                "gaps": totals.gaps,
                "unattributed_calls": unattributed_calls(directory),
            }
        },
    )
    return FAILED if totals.gaps else 0
