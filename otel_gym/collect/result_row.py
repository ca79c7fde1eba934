"""What is written of one rollout: the agent's result with the keys of its row and what was captured, or an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_gym.collect.agent import Failure
from otel_gym.rollouts import raw_rows
from otel_gym.rollouts.attachment import ATTACHED_KEYS, CAPTURE_KEY, ROW_KEYS, attach

ERROR_KEY = "ng_error"
"""The key of a row that has no result: `{code, message, [status], tries}`. A row with it does not count as finished."""

_LONGEST_MESSAGE = 4_000


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One row.

    Attributes:
        line: its JSON, with a newline.
        failure: why it has no result; None where it has.
        result: the values, with what is attached.
    """

    line: bytes
    failure: Failure | None
    result: Mapping[str, Any]

    @property
    def capture(self) -> Mapping[str, Any] | None:
        """What was captured; None without a capture directory."""
        found = self.result.get(CAPTURE_KEY)
        return found if isinstance(found, dict) else None


def result_row(
    row: Mapping[str, Any],
    outcome: bytes | Failure,
    capture_dirs: Sequence[Path],
    *,
    latency_ms: float,
    tries: int,
) -> ResultRow:
    """The row of a rollout. An answer that is no JSON object becomes a failure; all that it says keeps its bytes.

    Args:
        row: as it was posted.
        outcome: the agent's answer, or why there is none.
        capture_dirs: as for `attach`.
        latency_ms: how long the rollout took.
        tries: how often the row was posted.
    """
    if isinstance(outcome, bytes):
        try:
            return _of_answer(row, outcome, capture_dirs, latency_ms)
        except ValueError as error:
            outcome = Failure("malformed", f"the answer is no result: {error}", status=200)
    return _of_failure(row, outcome, capture_dirs, latency_ms, tries)


def _of_answer(row: Mapping[str, Any], answer: bytes, capture_dirs: Sequence[Path], latency_ms: float) -> ResultRow:
    text = answer.strip()
    if b"\n" in text or b"\r" in text:  # between values only: in a string JSON has them escaped
        text = text.replace(b"\n", b" ").replace(b"\r", b" ")
    given = raw_rows.parse(text)
    if given.get(ERROR_KEY) is not None:
        raise ValueError(f"it has the key {ERROR_KEY}, which says that there is none: {given[ERROR_KEY]!r:.500}")
    result = attach(row, given, capture_dirs, rollout_latency_ms=latency_ms)
    changed = {key: result[key] for key in ROW_KEYS if key in row}
    changed |= {key: result[key] for key in ATTACHED_KEYS if key in result and result[key] is not given.get(key)}
    pieces = raw_rows.replace(text, changed)
    pieces.append(b"\n")
    return ResultRow(b"".join(pieces), None, result)


def _of_failure(
    row: Mapping[str, Any], failure: Failure, capture_dirs: Sequence[Path], latency_ms: float, tries: int
) -> ResultRow:
    error: dict[str, Any] = {"code": failure.code, "message": failure.message[:_LONGEST_MESSAGE]}
    if failure.status is not None:
        error["status"] = failure.status
    error["tries"] = tries
    result = attach(row, {ERROR_KEY: error}, capture_dirs, rollout_latency_ms=latency_ms)
    return ResultRow(raw_rows.encode(result) + b"\n", failure, result)


def bad_line_row(line: int, reason: str) -> ResultRow:
    """The row of a line of the input that gives no run."""
    failure = Failure("input_invalid", f"line {line} of the input, counted from 0: {reason}")
    result = {ERROR_KEY: {"code": failure.code, "message": failure.message[:_LONGEST_MESSAGE], "line": line}}
    return ResultRow(raw_rows.encode(result) + b"\n", failure, result)
