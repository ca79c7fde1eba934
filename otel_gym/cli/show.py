"""`otel-gym show`: the rollouts of a capture directory, or the calls of one rollout.

One pass over each file, in the memory that one line needs. With `--json` one JSON object, payloads left out:

    show DIR        {"directory", "rollouts": [{"rollout_id", "file", "metrics", "errors", "gaps"}], "totals"}
    show DIR ID     {"directory", "rollout_id", "file", "calls": [...], "metrics", "errors", "gaps"}

A call has the fields of `ModelCallRecord` without its payloads, and `missing`: codes of what it lacks (`explanations`).
A line that holds no call stands among the calls as `{"call_index", "line", "unreadable": why}`.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from otel_gym.cli import FAILED, MISUSED
from otel_gym.cli.calls_view import print_calls, print_calls_json
from otel_gym.cli.capture_directory import (
    NoDirectoryError,
    Tally,
    directory_to_list,
    rollout_ids,
)
from otel_gym.cli.rollouts_view import print_rollouts, print_rollouts_json
from otel_gym.cli.terminal import Output, harmless
from otel_gym_jsonl.files import captured_id, is_readable_id, marked_id

if TYPE_CHECKING:
    from otel_gym.cli import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add `show` to the command line."""
    parser = subparsers.add_parser(
        "show",
        help="the rollouts of a capture directory, or the calls of one",
        description="Show the rollouts of a capture directory, or the calls of one rollout: tokens, times, tool calls, "
        "errors, and what is missing and why. Exit code 1 if something is missing, or there is no such rollout.",
    )
    parser.add_argument("directory", metavar="DIR", help="the capture directory")
    parser.add_argument("rollout_id", metavar="ID", nargs="?", help="a rollout; without one, all are listed")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Do it, and return the exit code."""
    try:
        directory = directory_to_list(args.directory)
    except NoDirectoryError as exc:
        return _misused(str(exc))
    if args.rollout_id is None:
        return print_rollouts_json(directory) if args.json else print_rollouts(directory, Output())
    named = args.rollout_id
    if not is_readable_id(named):
        return _misused(f"{named!r} is no rollout id: those have letters, digits, '.', '_' and '-' only")
    for rollout_id in (named, captured_id(named), marked_id(named)):  # the name of a file does for the id
        if rollout_id is not None and (tally := Tally.of(directory, rollout_id)).is_there:
            return print_calls_json(directory, tally) if args.json else print_calls(tally, Output())
    return _not_found(directory, named)


def _misused(message: str) -> int:
    print(f"otel-gym show: {message}", file=sys.stderr)
    return MISUSED


def _not_found(directory: Path, rollout_id: str) -> int:
    near = difflib.get_close_matches(rollout_id, rollout_ids(directory), n=5)
    hint = f"; near it are {', '.join(near)}" if near else ""
    print(f"otel-gym show: no rollout {rollout_id!r} in {harmless(str(directory))}{hint}", file=sys.stderr)
    return FAILED
