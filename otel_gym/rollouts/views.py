"""Rows as tables for trackers: numbers and names, no payload, no trajectory.

What a prompt or an answer says stays in the row; a tracker gets only the columns that are listed here, and those that
its user names. Source: "Export views" of the rollout specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from otel_gym.rollouts.attachment import ATTACHED_KEYS, CAPTURE_KEY, ROW_KEYS
from otel_gym.rollouts.perf import PERF_KEY, RolloutPerf

Row = Mapping[str, Any]
Cells = dict[str, Any]

_METRICS = (
    "tokens_in",
    "tokens_out",
    "tokens_reasoning",
    "tokens_total",
    "cached_tokens",
    "latency_total_ms",
    "num_calls",
)
ROLLOUT_COLUMNS = ("rollout_id", *ROW_KEYS, "reward", *_METRICS, *RolloutPerf.model_fields, "gaps")
"""The columns of `rollout_table`: `reward` if it is a number, totals of the calls, `ng_perf`, the codes of the gaps."""

CALL_COLUMNS = (
    "rollout_id",
    "call_index",
    "model_call_id",
    "response_id",
    "model_server",
    "model",
    "dialect",
    "status_code",
    "response_status",
    "finish_reason",
    "response_source",
    "error_category",
    "started_at",
    "completed_at",
    "tokens_in",
    "tokens_out",
    "tokens_reasoning",
    "tokens_total",
    "cached_tokens",
    "cache_creation_tokens",
    "latency_total_ms",
    "latency_ttft_ms",
    "tool_calls",
)
"""The columns of `call_table`; `tool_calls` is their number."""


def rollout_table(rows: Iterable[Row], columns: Iterable[str] = ()) -> Iterator[Cells]:
    """One line of cells a row, every column in each; None is unknown.

    Args:
        rows: as `attach` gives them.
        columns: further keys of the rows. Their values are taken where they are a number, a boolean or a text.

    Raises:
        ValueError: a further column is one of the attached `ng_*` keys.
    """
    further = tuple(columns)
    if forbidden := sorted(set(further) & set(ATTACHED_KEYS)):
        raise ValueError(f"{', '.join(forbidden)} cannot be a column: it holds what was sent and what came")
    for row in rows:
        capture, perf = _object(row.get(CAPTURE_KEY)), _object(row.get(PERF_KEY))
        metrics = _object(capture.get("metrics"))
        gaps = capture.get("gaps")
        cells: Cells = dict.fromkeys(ROLLOUT_COLUMNS)
        cells.update({key: _scalar(row.get(key)) for key in (*ROW_KEYS, *further)})
        cells.update({name: _number(metrics.get(name)) for name in _METRICS})
        cells.update({name: _number(perf.get(name)) for name in RolloutPerf.model_fields})
        cells["rollout_id"] = _scalar(capture.get("rollout_id"))
        cells["reward"] = _number(row.get("reward"))
        cells["gaps"] = ",".join(
            str(gap["code"]) for gap in (gaps if isinstance(gaps, list) else ()) if "code" in _object(gap)
        )
        yield cells


def call_table(rows: Iterable[Row]) -> Iterator[Cells]:
    """One line of cells a model call, every column in each; None is unknown."""
    for row in rows:
        capture = _object(row.get(CAPTURE_KEY))
        calls = capture.get("calls")
        for call in calls if isinstance(calls, list) else ():
            if not isinstance(call, dict):
                continue
            cells = {name: _scalar(call.get(name)) for name in CALL_COLUMNS}
            asked = call.get("tool_calls")
            cells["rollout_id"] = _scalar(capture.get("rollout_id"))
            cells["model_server"] = _scalar(_object(call.get("model_ref")).get("name"))
            cells["tool_calls"] = len(asked) if isinstance(asked, list) else None
            yield cells


def without_evidence(row: Row) -> Cells:
    """The row without the four attached keys: what an aggregation of metrics may see."""
    return {key: value for key, value in row.items() if key not in ATTACHED_KEYS}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _scalar(value: Any) -> Any:
    return value if isinstance(value, (str, int, float)) else None


def _number(value: Any) -> Any:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
