"""The calls of one rollout, as a table and as JSON (see `show`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from otel_gym.cli import FAILED
from otel_gym.cli.capture_directory import GAPS, UNREADABLE, Tally
from otel_gym.cli.explanations import CATEGORIES, MISSING_PARTS, UNKNOWN_CATEGORY, missing_parts
from otel_gym.cli.json_output import print_json
from otel_gym.cli.terminal import MISSING, Column, Output, Table, count, harmless, plural, seconds
from otel_gym_jsonl.model_calls import ModelCallRecord

_NAMED_TOOLS = 20
_PAYLOADS = {"request", "response", "request_raw", "response_raw"}

_CALLS = (
    Column("#", right=True),
    Column("dialect"),
    Column("model", least=14),
    Column("status"),
    Column("in", right=True),
    Column("out", right=True),
    Column("cached", right=True),
    Column("ttft", right=True),
    Column("time", right=True),
    Column("tools", least=5),
)


class _Reasons:
    """Which calls had which trouble; of many calls the first few are named."""

    _NAMED = 5

    def __init__(self) -> None:
        self._calls: dict[str, list[int]] = {}
        self._counts: dict[str, int] = {}

    def add(self, code: str, call_index: int) -> None:
        self._counts[code] = self._counts.get(code, 0) + 1
        named = self._calls.setdefault(code, [])
        if len(named) < self._NAMED:
            named.append(call_index)

    def items(self) -> Iterator[tuple[str, str]]:
        """(code, `call 3` or `calls 3, 4, … (17 in all)`)"""
        for code, named in self._calls.items():
            number = self._counts[code]
            calls = ", ".join(map(str, named))
            more = f", … ({number:,} in all)" if number > len(named) else ""
            yield code, f"{'call' if number == 1 else 'calls'} {calls}{more}"


def print_calls(tally: Tally, output: Output) -> int:
    """Print the table of calls and why things are missing; return the exit code."""
    table = Table(output, _CALLS)
    categories, missing = _Reasons(), _Reasons()
    for line, call in tally.calls():
        if not isinstance(call, ModelCallRecord):
            table.row([f"{line.index}  unreadable, line {line.number}: {call.reason}"], "red")
            continue
        table.row(_cells(call), "yellow" if call.error_category else None)
        parts = missing_parts(call)
        if call.error_category is not None:
            category = call.error_category[:80]
            categories.add(category, call.call_index)
            table.row([f"   {category}"], "yellow")
        for code in parts:
            if call.error_category is None or "request" in code:
                missing.add(code, call.call_index)
    gaps = tally.gaps()
    if tally.metrics.num_calls or tally.unreadable_lines:
        table.finish()
        output.line()
    output.paragraph(_summary(tally), indent="  ")
    for code, calls in categories.items():
        output.paragraph(f"{harmless(code)} ({calls}): {CATEGORIES.get(code, UNKNOWN_CATEGORY)}", indent="  ")
    for code, calls in missing.items():
        output.paragraph(f"{code} ({calls}): {MISSING_PARTS[code]}", indent="  ")
    for gap in gaps:
        failure = f" ({harmless(gap['detail'])})" if gap["code"] == UNREADABLE else ""
        output.paragraph(GAPS[gap["code"]] + failure, indent="  ")
    return FAILED if gaps else 0


def _cells(call: ModelCallRecord) -> list[str]:
    return [
        str(call.call_index),
        call.dialect or MISSING,
        call.model or MISSING,
        count(call.status_code),
        count(call.tokens_in),
        count(call.tokens_out),
        count(call.cached_tokens),
        seconds(call.latency_ttft_ms),
        seconds(call.latency_total_ms),
        _tools(call),
    ]


def _tools(call: ModelCallRecord) -> str:
    names = ", ".join(str(tool["name"] or "?") for tool in call.tool_calls[:_NAMED_TOOLS])
    return f"{len(call.tool_calls)} {names}" if names else MISSING


def _summary(tally: Tally) -> str:
    sums = tally.metrics.totals()
    parts = [plural(tally.metrics.num_calls, "call")]
    if sums["tokens_in"] is not None or sums["tokens_out"] is not None:
        cached = f" ({sums['cached_tokens']:,} cached)" if sums["cached_tokens"] is not None else ""
        parts.append(f"tokens: {_known(sums['tokens_in'])} in{cached}, {_known(sums['tokens_out'])} out")
    if sums["latency_total_ms"] is not None:
        parts.append(f"{seconds(sums['latency_total_ms'])} of model time")
    return f"{tally.rollout_id}: {'; '.join(parts)}"


def _known(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def print_calls_json(directory: Path, tally: Tally) -> int:
    """Print the calls as one JSON object, and return the exit code."""

    def items() -> Iterator[dict[str, Any]]:
        for line, call in tally.calls():
            if isinstance(call, ModelCallRecord):
                yield {**call.model_dump(exclude=_PAYLOADS), "missing": missing_parts(call)}
            else:
                yield {"call_index": line.index, "line": line.number, "unreadable": call.reason}

    print_json(
        {"directory": str(directory), "rollout_id": tally.rollout_id, "file": tally.file},
        "calls",
        items(),
        lambda: {"metrics": tally.metrics.totals(), "errors": tally.errors, "gaps": tally.gaps()},
    )
    return FAILED if tally.gaps() else 0
