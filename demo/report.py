"""What was captured, for a person to read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from demo.rollouts import Rollout
from otel_gym_jsonl import CaptureStore, ModelCallRecord, read_available_model_call_records

UNKNOWN = "-"
WIDTH = 118
LONGEST_TEXT = 70
HEAD = ("call", "dialect", "status", "in", "cached", "out", "thinking", "first token", "whole", "tool call", "category")
LEFT = {"dialect", "tool call", "category"}


def rollout_lines(store: CaptureStore, rollout: Rollout) -> Iterator[str]:
    """One rollout: its file, its calls as a table, its gaps."""
    calls, damaged = read_available_model_call_records(store, rollout.id)
    yield f"rollout {rollout.id}: {len(calls)} calls in {store.path_for(rollout.id)}"
    yield from (f"  {line}" for line in table(HEAD, [_row(call) for call in calls], LEFT))
    yield f"  gaps: {', '.join(gaps(store, rollout.id, calls, damaged)) or 'none'}"


def gaps(store: CaptureStore, rollout_id: str, calls: Sequence[ModelCallRecord], damaged: int) -> list[str]:
    """Why something is missing, in the words of the attachment."""
    found = []
    if not calls:
        found.append("model_call_capture_no_records")
    if damaged:
        found.append(f"model_call_capture_records_unreadable (count={damaged})")
    if store.marker_for(rollout_id).exists():
        found.append("model_call_capture_incomplete")
    return found


def shortfalls(store: CaptureStore, rollout: Rollout) -> list[str]:
    """Where the capture is not what the rollout must have left; empty when all is there."""
    calls, damaged = read_available_model_call_records(store, rollout.id)
    wrong = gaps(store, rollout.id, calls, damaged)
    expected = [(rollout.dialect, 200, category) for category in rollout.categories]
    found = [(call.dialect, call.status_code, call.error_category) for call in calls]
    if expected != found:
        wrong.append(f"expected calls (dialect, status, category) {expected}, found {found}")
    silent = [call.call_index for call in calls if call.error_category is None and not call.tokens_total]
    if silent:
        wrong.append(f"no tokens in calls {silent}")
    return [f"rollout {rollout.id}: {what}" for what in wrong]


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: set[str]) -> Iterator[str]:
    """Aligned columns: words to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        cells = (
            cell.ljust(width) if name in left else cell.rjust(width)
            for name, cell, width in zip(head, row, widths, strict=True)
        )
        yield "  ".join(cells).rstrip()


def pretty(value: Any, indent: int = 0, lead: int = 0) -> str:
    """JSON with all that fits on one line on one line, and long texts cut for the eye.

    Args:
        value: what to show.
        indent: spaces before the closing bracket.
        lead: characters that stand before the value on its first line, beyond the indent.
    """
    flat = json.dumps(_shortened(value), ensure_ascii=False)
    if indent + lead + len(flat) <= WIDTH or not isinstance(value, (dict, list)):
        return flat
    inner = indent + 2
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {pretty(item, inner, len(key) + 4)}" for key, item in value.items()]
    else:
        items = [pretty(item, inner) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{' ' * inner}" + f",\n{' ' * inner}".join(items) + f"\n{' ' * indent}{closing}"


def _row(call: ModelCallRecord) -> list[str]:
    tools = [f"{tool['name']} {json.dumps(tool['arguments'])}" for tool in call.tool_calls]
    numbers = (call.status_code, call.tokens_in, call.cached_tokens, call.tokens_out, call.tokens_reasoning)
    times = (call.latency_ttft_ms, call.latency_total_ms)
    status, *tokens = (UNKNOWN if number is None else str(number) for number in numbers)
    return [
        str(call.call_index),
        call.dialect or UNKNOWN,
        status,
        *tokens,
        *(UNKNOWN if time is None else f"{time:.1f} ms" for time in times),
        ", ".join(tools) or UNKNOWN,
        call.error_category or UNKNOWN,
    ]


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[:LONGEST_TEXT]}… ({len(value)} characters)"
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    return [_shortened(item) for item in value] if isinstance(value, list) else value
