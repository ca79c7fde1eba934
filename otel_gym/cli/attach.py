"""`otel-gym attach`: what was captured of each rollout, attached to its row, for rollouts that anyone collected.

Lines that cannot be taken are named on stderr, with their numbers, and carried over unchanged. What was done goes to
stdout; with `--json` as one JSON object:

    {"input", "output", "unchanged": [{"line", "reason"}],
     "rows", "attached", "calls", "gaps": {code: rows}, "complete"}
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_gym.cli import FAILED, MISUSED
from otel_gym.cli.capture_directory import GAPS, NoDirectoryError, existing_directory
from otel_gym.cli.json_output import print_json
from otel_gym.cli.terminal import Output, harmless, plural

if TYPE_CHECKING:
    from otel_gym.cli import Subparsers
    from otel_gym.rollouts.row_files import Damage, Totals

_SHOWN = 20


def add_parser(subparsers: Subparsers) -> None:
    """Add `attach` to the command line."""
    parser = subparsers.add_parser(
        "attach",
        help="attach what was captured to the rows of collected rollouts",
        description="Read rollout rows, one JSON object a line, and write them with ng_model_call_capture, "
        "ng_trajectory and ng_perf attached; all else in a row keeps its bytes. A line that is no row of a rollout is "
        "named and carried over unchanged. The output appears whole or not at all. Exit code 1 if a row has no "
        "attachment, or one with a gap.",
    )
    parser.add_argument("rows", metavar="ROLLOUTS", type=Path, help="the JSONL file of rollouts")
    parser.add_argument(
        "--capture-dir", metavar="DIR", action="append", required=True, help="a capture directory; may be repeated"
    )
    parser.add_argument("-o", "--output", metavar="OUT", type=Path, required=True, help="the JSONL file to write")
    parser.add_argument("--no-payloads", action="store_true", help="leave requests and answers out")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Do it, and return the exit code."""
    from otel_gym.rollouts.row_files import Totals, attach_file  # loads pydantic's models, which no other command needs

    try:
        directories = [existing_directory(argument).absolute() for argument in args.capture_dir]
    except NoDirectoryError as exc:
        return _misused(str(exc))
    if not args.rows.is_file():
        return _misused(f"there is no file {str(args.rows)!r}")
    if args.output.is_dir():
        return _misused(f"{str(args.output)!r} is a directory: give the name of the file to write")
    if not args.output.parent.is_dir():
        return _misused(f"there is no directory {str(args.output.parent)!r} to write into")
    if args.output.exists() and args.output.samefile(args.rows):
        return _misused("the output is the input: give it another name, so that the rows as collected are kept")

    totals = Totals()
    unchanged = attach_file(args.rows, args.output, directories, totals, include_payloads=not args.no_payloads)
    if args.json:
        _print_json(args, unchanged, totals)
    else:
        _print(args, unchanged, totals)
    return 0 if totals.complete else FAILED


def _misused(message: str) -> int:
    print(f"otel-gym attach: {message}", file=sys.stderr)
    return MISUSED


def _print_json(args: argparse.Namespace, unchanged: Iterator[Damage], totals: Totals) -> None:
    def tail() -> dict[str, Any]:
        return {
            "rows": totals.rows,
            "attached": totals.attached,
            "calls": totals.calls,
            "gaps": dict(sorted(totals.gaps.items())),
            "complete": totals.complete,
        }

    items = ({"line": damage.line, "reason": damage.reason} for damage in unchanged)
    print_json({"input": str(args.rows), "output": str(args.output)}, "unchanged", items, tail)


def _print(args: argparse.Namespace, unchanged: Iterator[Damage], totals: Totals) -> None:
    number = 0
    for number, damage in enumerate(unchanged, 1):
        if number <= _SHOWN:
            where = f"{harmless(str(args.rows))}:{damage.line}"
            print(f"otel-gym attach: {where}: carried over unchanged: {harmless(damage.reason)}", file=sys.stderr)
    if number > _SHOWN:
        print(f"otel-gym attach: and {number - _SHOWN:,} more ('--json' lists all)", file=sys.stderr)
    output = Output()
    for code, rows in sorted(totals.gaps.items()):
        output.paragraph(f"{code}: {plural(rows, 'row')}. {GAPS.get(code, '')}".rstrip(), indent="  ")
    done = f"{plural(totals.rows, 'row')}, {totals.attached:,} attached, {plural(totals.calls, 'call')}"
    verdict = output.style("complete", "green") if totals.complete else output.style("incomplete", "red")
    output.line(f"{verdict}: {done}, in {harmless(str(args.output))}")
