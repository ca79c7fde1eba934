"""`otel-gym collect`: post the tasks of a file to an agent, and write one row for each rollout as it comes.

Progress goes to stderr, what was done to stdout; with `--json` as one JSON object:

    {"output", "capture_dirs", "failures": [{"task", "rollout", "line", "message"}],
     "wanted", "with_result", "earlier", "done", "failed": {code: rows}, "missing", "retried", "calls", "tokens",
     "unattributed_calls": {reason: calls}, "gaps": {code: rows}, "torn_line_repaired", "damaged_lines", "interrupted",
     "seconds", "complete"}
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_gym.cli import FAILED, INTERRUPTED, MISUSED
from otel_gym.cli.capture_directory import GAPS, NoDirectoryError, existing_directory, unattributed_words
from otel_gym.cli.json_output import print_json
from otel_gym.cli.terminal import Output, harmless, plural
from otel_gym.settings import Settings

if TYPE_CHECKING:
    from otel_gym.cli import Subparsers
    from otel_gym.collect.collection import Plan
    from otel_gym.collect.tally import Tally

_SHOWN = 5


def add_parser(subparsers: Subparsers) -> None:
    """Add `collect` to the command line."""
    parser = subparsers.add_parser(
        "collect",
        help="run an agent on the tasks of a file, and collect its rollouts",
        description="Post each task of a JSONL file to an agent's /run, and write its result as a row, durably, the "
        "moment it comes, with ng_model_call_capture, ng_trajectory and ng_perf attached. What fails is tried again "
        "where that makes sense, then becomes a row with ng_error. Interrupted or killed, it goes on with --resume. "
        "Exit code 0 only if every rollout has a result.",
    )
    parser.add_argument("--agent", metavar="URL", required=True, help="base URL of the agent's server")
    parser.add_argument("--input", metavar="TASKS", type=Path, required=True, help="the JSONL file of tasks")
    parser.add_argument("--output", metavar="ROLLOUTS", type=Path, required=True, help="the JSONL file to write")
    parser.add_argument("--limit", metavar="N", type=_natural, help="the first N tasks only")
    parser.add_argument(
        "--num-repeats", metavar="K", type=_positive, default=1, help="rollouts of each task (%(default)s)"
    )
    parser.add_argument(
        "--concurrency", metavar="C", type=_positive, default=64, help="rollouts at a time (%(default)s)"
    )
    parser.add_argument("--resume", action="store_true", help="go on: skip what has a result in the output already")
    parser.add_argument(
        "--retries", metavar="R", type=_natural, default=2, help="tries of a rollout beyond the first (%(default)s)"
    )
    parser.add_argument(
        "--timeout", metavar="S", type=_seconds, help="seconds that one try may take (no limit unless said)"
    )
    parser.add_argument(
        "--capture-dir",
        metavar="DIR",
        action="append",
        help="the capture directory of the model servers; may be repeated (the one that the settings name)",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Do it, and return the exit code."""
    if (wrong := _misuse(args)) is not None:
        return _misused(wrong)
    try:
        directories = [existing_directory(named).absolute() for named in args.capture_dir or _of_settings()]
    except NoDirectoryError as exc:
        return _misused(str(exc))
    from otel_gym.collect.collection import Plan  # loads pydantic's models, which no other command needs
    from otel_gym.collect.errors import BusyError, NotEmptyError

    plan = Plan(
        agent=args.agent,
        input=args.input,
        output=args.output,
        limit=args.limit,
        repeats=args.num_repeats,
        concurrency=args.concurrency,
        resume=args.resume,
        retries=args.retries,
        timeout_s=args.timeout,
        capture_dirs=directories,
    )
    try:
        tally = asyncio.run(_collect(plan, quiet=args.quiet))
    except (BusyError, NotEmptyError) as exc:
        return _misused(str(exc))
    if args.json:
        _print_json(plan, tally)
    else:
        _print(plan, tally)
    if tally.interrupted:
        return INTERRUPTED
    return 0 if tally.complete else FAILED


async def _collect(plan: Plan, *, quiet: bool) -> Tally:
    from otel_gym.collect.collection import Collection
    from otel_gym.collect.progress import Progress
    from otel_gym.collect.tracing import Tracing

    tracing = None
    if plan.capture_dirs:
        settings = Settings(observability_enabled=True, model_call_capture_dir=plan.capture_dirs[0])
        tracing = Tracing.of(settings, plan.output)
    collection = Collection(plan, tracing)
    progress = Progress(collection.tally, sys.stderr, captured=bool(plan.capture_dirs))
    telling = None if quiet else asyncio.create_task(progress.run())
    try:
        return await collection.run()
    finally:
        if telling is not None:
            telling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await telling
            progress.end()


def _of_settings() -> list[str]:
    settings = Settings()
    directory = settings.model_call_capture_dir
    return [str(directory)] if settings.observability_enabled and directory is not None else []


def _misuse(args: argparse.Namespace) -> str | None:
    if not args.agent.startswith(("http://", "https://")):
        return f"--agent: got {args.agent!r}; allowed: a URL, such as http://127.0.0.1:8001"
    if not args.input.is_file():
        return f"there is no file {str(args.input)!r}"
    if args.output.is_dir():
        return f"{str(args.output)!r} is a directory: give the name of the file to write"
    if not args.output.parent.is_dir():
        return f"there is no directory {str(args.output.parent)!r} to write into"
    if args.output.exists() and args.output.samefile(args.input):
        return "the output is the input: give it another name"
    return None


def _misused(message: str) -> int:
    print(f"otel-gym collect: {message}", file=sys.stderr)
    return MISUSED


def _print_json(plan: Plan, tally: Tally) -> None:
    def failures() -> Iterator[dict[str, Any]]:
        for key, message in tally.examples:
            task, rollout, line = (None, None, key) if isinstance(key, int) else (*key, None)
            yield {"task": task, "rollout": rollout, "line": line, "message": message}

    def tail() -> dict[str, Any]:
        return {
            "wanted": tally.wanted,
            "with_result": tally.with_result,
            "earlier": tally.earlier,
            "done": tally.done,
            "failed": dict(sorted(tally.failed.items())),
            "missing": tally.missing,
            "retried": tally.retried,
            "calls": tally.calls,
            "tokens": tally.tokens,
            "unattributed_calls": dict(sorted(tally.unattributed.items())),
            "gaps": dict(sorted(tally.gaps.items())),
            "torn_line_repaired": tally.torn,
            "damaged_lines": tally.damaged,
            "interrupted": tally.interrupted,
            "seconds": round(tally.seconds, 3),
            "complete": tally.complete,
        }

    head = {"output": str(plan.output), "capture_dirs": list(map(str, plan.capture_dirs))}
    print_json(head, "failures", failures(), tail)


def _print(plan: Plan, tally: Tally) -> None:
    output = Output()
    where = harmless(str(plan.output))
    for key, message in tally.examples[:_SHOWN]:
        who = "" if isinstance(key, int) else f"task {key[0]}, rollout {key[1]}: "  # a line's message names it
        output.paragraph(f"{who}{harmless(message[:500])}", indent="  ")
    failed = tally.failed.total()
    if failed > _SHOWN:
        output.line(f"  … and {failed - _SHOWN:,} more failed; each has a row with ng_error")
    for code, rows in sorted(tally.gaps.items()):
        output.paragraph(f"{code}: {plural(rows, 'row')}. {GAPS.get(code, '')}".rstrip(), indent="  ")
    if tally.unattributed:
        output.paragraph(
            f"{unattributed_words(tally.unattributed)}: they came to the model servers meanwhile, belong to no rollout "
            "and are in no file; the model server's log says whose they are.",
            indent="  ",
        )
    if tally.torn:
        output.line(f"{where}: a torn last line was cut off; its rollout was run again")
    if tally.damaged:
        output.line(f"{where}: {plural(tally.damaged, 'line')} that are no rows of a rollout were left as they are")
    wanted = "?" if tally.wanted is None else f"{tally.wanted:,}"
    parts = [f"{tally.with_result:,} of {wanted} rollouts have a result"]
    if tally.earlier:
        parts.append(f"{tally.earlier:,} of them from before")
    if failed:
        parts.append(f"{failed:,} failed ({', '.join(f'{code} {n:,}' for code, n in sorted(tally.failed.items()))})")
    if tally.missing:
        parts.append(f"{tally.missing:,} not run")
    if plan.capture_dirs:
        parts.append(f"{plural(tally.calls, 'call')} attached")
        parts.append(f"{tally.unattributed.total():,} unattributed")
    verdict = "complete" if tally.complete else "interrupted" if tally.interrupted else "incomplete"
    output.line(f"{output.style(verdict, 'green' if tally.complete else 'red')}: {', '.join(parts)}, in {where}")
    for directory in plan.capture_dirs:
        output.line(f"model calls: {harmless(str(directory))}")
    if not plan.capture_dirs:
        output.paragraph(
            "No capture directory: no model calls are attached, and what an earlier collection left there was not "
            "cleared. Give --capture-dir where the model servers capture.",
            indent="  ",
        )
    if not tally.complete:
        output.line("The same command with --resume runs what has no result.")


def _natural(text: str) -> int:
    return _number(text, 0)


def _positive(text: str) -> int:
    return _number(text, 1)


def _number(text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise argparse.ArgumentTypeError(f"got {text!r}; allowed: a whole number from {least} on")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"got {text!r}; allowed: a number of seconds above 0")
    return value
