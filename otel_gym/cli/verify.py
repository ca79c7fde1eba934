"""`otel-gym verify`: whether a capture directory is whole, and what to do where it is not.

Each finding is one line, `file:line: what`, in the order of the files, calls that stand twice at the end; what the
findings mean stands once below them.
A finding is a *problem* (something is missing or damaged: exit code 1) or a *note* (worth a look, nothing is lost).
With `--json` one JSON object:

    {"directory", "findings": [{"file", "line", "code", "severity", "detail"}],
     "rollouts", "calls", "bytes", "problems", "notes", "complete", "meaning": {code: text}}

Memory is bounded whatever the size of the files: one line at a time, and for repeated calls, over all files, a filter
of 32 MiB and 131,072 ids that it suspects (`repeated_calls`). Where it suspects any, the files are read a second time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from otel_gym.cli import FAILED, MISUSED
from otel_gym.cli.capture_directory import NoDirectoryError, directory_to_list
from otel_gym.cli.findings import MEANING, Finding
from otel_gym.cli.inspection import Inspection
from otel_gym.cli.json_output import print_json
from otel_gym.cli.terminal import Output, harmless, plural, size

if TYPE_CHECKING:
    from otel_gym.cli import Subparsers

_SHOWN_OF_A_KIND = 10


def add_parser(subparsers: Subparsers) -> None:
    """Add `verify` to the command line."""
    parser = subparsers.add_parser(
        "verify",
        help="whether a capture directory is whole, and what to do where it is not",
        description="Read every capture file of a directory and name what is damaged or missing: torn and damaged "
        "lines with their numbers, markers of lost calls, repeated calls, files that are no capture files. Nothing is "
        "changed. Exit code 1 if anything is damaged or missing.",
    )
    parser.add_argument("directory", metavar="DIR", help="the capture directory")
    parser.add_argument("--json", action="store_true", help="print one JSON object, with every finding")


def run(args: argparse.Namespace) -> int:
    """Do it, and return the exit code."""
    try:
        directory = directory_to_list(args.directory)
    except NoDirectoryError as exc:
        print(f"otel-gym verify: {exc}", file=sys.stderr)
        return MISUSED
    inspection = Inspection(directory)
    if args.json:
        _print_json(inspection)
    else:
        _print(inspection, Output())
    return FAILED if inspection.problems else 0


def _print_json(inspection: Inspection) -> None:
    def items() -> Iterator[dict[str, Any]]:
        for finding in inspection.findings():
            yield {
                "file": finding.file,
                "line": finding.line,
                "code": finding.code,
                "severity": finding.severity,
                "detail": finding.detail,
            }

    def summary() -> dict[str, Any]:
        return {
            "rollouts": inspection.rollouts,
            "calls": inspection.calls,
            "bytes": inspection.bytes,
            "problems": inspection.problems,
            "notes": inspection.notes,
            "complete": not inspection.problems,
            "meaning": {code: MEANING[code] for code in inspection.seen},
        }

    print_json({"directory": str(inspection.directory)}, "findings", items(), summary)


def _print(inspection: Inspection, output: Output) -> None:
    file: str | None = None
    shown: dict[str, int] = {}
    for finding in inspection.findings():
        if finding.file != file:
            _print_rest(shown, output)
            file, shown = finding.file, {}
        shown[finding.code] = shown.get(finding.code, 0) + 1
        if shown[finding.code] <= _SHOWN_OF_A_KIND:
            _print_finding(finding, output)
    _print_rest(shown, output)
    if inspection.seen:
        output.line()
    for code in inspection.seen:
        output.paragraph(f"{code}: {MEANING[code]}", indent="  ")
    if inspection.seen:
        output.line()
    problems, notes = plural(inspection.problems, "problem"), plural(inspection.notes, "note")
    verdict = problems if inspection.problems else "complete"
    if inspection.notes:
        verdict += f", {notes}"
    what = f"{plural(inspection.rollouts, 'rollout')}, {plural(inspection.calls, 'call')}, {size(inspection.bytes)}"
    output.line(f"{output.style(verdict, 'red' if inspection.problems else 'green')}: {what}")
    if not inspection.rollouts:
        print(
            f"otel-gym verify: no capture files in {harmless(str(inspection.directory))}; if calls were made, they "
            "came without the /ng-rollout/<id> prefix, or went elsewhere",
            file=sys.stderr,
        )


def _print_finding(finding: Finding, output: Output) -> None:
    where = harmless(finding.file) + (f":{finding.line}" if finding.line else "")
    detail = f": {harmless(finding.detail)}" if finding.detail else ""
    style = "red" if finding.severity == "problem" else "yellow"
    output.line(f"{where}: {output.style(finding.code, style)}{detail}")


def _print_rest(shown: dict[str, int], output: Output) -> None:
    for code, number in shown.items():
        if number > _SHOWN_OF_A_KIND:
            output.line(f"  … and {number - _SHOWN_OF_A_KIND:,} more of {code} in this file ('--json' lists all)")
