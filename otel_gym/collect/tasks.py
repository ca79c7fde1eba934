"""The input: one task a line, and of each the runs that are wanted. Streamed; memory is what one line needs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_gym.collect.pairs import PairSet
from otel_gym.errors import InvalidRolloutIdError
from otel_gym.rollouts import raw_rows
from otel_gym.rollouts.ids import (
    ATTEMPT_INDEX_KEY,
    ROLLOUT_ID_KEY,
    ROLLOUT_INDEX_KEY,
    TASK_INDEX_KEY,
    maybe_rollout_id_from_run_body,
)
from otel_gym_jsonl.files import is_rollout_id

Pair = tuple[int, int]

_BUFFER = 1 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """One rollout of one task, before it has an attempt.

    Attributes:
        line: of the input, from 0.
        pair: task index and rollout index.
        row: as it stands in the input, with its two indices.
        text: the line as it stands there, without its newline.
        first_attempt: what the input gave as attempt, else 0.
    """

    line: int
    pair: Pair
    row: dict[str, Any]
    text: bytes
    first_attempt: int

    def body(self, attempt: int) -> tuple[dict[str, Any], bytes]:
        """The row and its JSON, as they are posted for an attempt. Everything else keeps its bytes."""
        changed: dict[str, Any] = {TASK_INDEX_KEY: self.pair[0], ROLLOUT_INDEX_KEY: self.pair[1]}
        if attempt:
            changed[ATTEMPT_INDEX_KEY] = attempt
        return {**self.row, **changed}, b"".join(raw_rows.replace(self.text, changed))


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line of the input, from 0, that gives no run, and why."""

    line: int
    reason: str


def runs(path: Path, limit: int | None = None, repeats: int = 1) -> Iterator[Run | BadLine]:
    """Each rollout that is wanted: all tasks for the first time, in order of the file, each with its repeats.

    A missing task index is the number of the line from 0. A repeat r of a row with rollout index i has the index
    i x repeats + r. Empty lines are passed over, and count as lines.

    Args:
        path: JSONL, one task a line.
        limit: so many tasks at most, from the first.
        repeats: rollouts of each task.

    Raises:
        OSError: the file cannot be read.
    """
    seen, seen_ids = PairSet(), set[bytes]()
    for number, text in task_lines(path, limit):
        try:
            found = runs_of(number, text, repeats)
            for run in found:
                _must_be_new(run, seen, seen_ids)
        except InvalidRolloutIdError as error:
            yield BadLine(number, f"its rollout id is {error.rollout_id!r}, which cannot name a capture file")
        except ValueError as error:
            yield BadLine(number, str(error))
        else:
            yield from found


def task_lines(path: Path, limit: int | None = None) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, each with its number from 0 and without white space around it.

    Raises:
        OSError: the file cannot be read.
    """
    tasks = 0
    with path.open("rb", buffering=_BUFFER) as lines:
        for number, line in enumerate(lines):
            text = line.strip()
            if not text:
                continue
            if limit is not None and tasks >= limit:
                return
            tasks += 1
            yield number, text


def runs_of(number: int, text: bytes, repeats: int) -> list[Run]:
    """The runs that one line asks for.

    Raises:
        ValueError: it is no task; `InvalidRolloutIdError` where its id cannot name a file.
    """
    row = raw_rows.parse(text)
    task = _index(row, TASK_INDEX_KEY, number)
    rollout = _index(row, ROLLOUT_INDEX_KEY, 0)
    attempt = _index(row, ATTEMPT_INDEX_KEY, 0)
    if row.get(ROLLOUT_ID_KEY) is not None and repeats > 1:
        raise ValueError(f"it has an id of its own ({ROLLOUT_ID_KEY}), so it cannot be repeated: give each run its row")
    found = []
    for repeat in range(repeats):
        pair = (task, rollout * repeats + repeat)
        named = {**row, TASK_INDEX_KEY: pair[0], ROLLOUT_INDEX_KEY: pair[1]}
        rollout_id = maybe_rollout_id_from_run_body(named)
        if rollout_id is None or not is_rollout_id(rollout_id):
            raise InvalidRolloutIdError(rollout_id)
        found.append(Run(number, pair, named, text, attempt))
    return found


def _index(row: dict[str, Any], key: str, missing: int) -> int:
    value = row.get(key)
    if value is None:
        return missing
    if type(value) is not int or value < 0:
        raise ValueError(f"{key} is {value!r:.100}; allowed: a whole number from 0 on")
    return value


def _must_be_new(run: Run, seen: PairSet, seen_ids: set[bytes]) -> None:
    """Two runs of one id would have their model calls in one file.

    Raises:
        ValueError: there was a run of this pair, or of this explicit id, before.
    """
    task, rollout = run.pair
    explicit = run.row.get(ROLLOUT_ID_KEY)
    if explicit is not None:
        digest = hashlib.blake2b(explicit.encode(), digest_size=12).digest()
        if digest in seen_ids:
            raise ValueError(f"a line before it has the same {ROLLOUT_ID_KEY}, {explicit!r:.100}")
        seen_ids.add(digest)
    if not seen.add(run.pair):
        raise ValueError(f"a line before it is task {task}, rollout {rollout} too")
