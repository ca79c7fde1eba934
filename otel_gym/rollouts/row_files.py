"""Rollouts that anyone collected, a JSONL file of rows, with what was captured of them attached.

The file is streamed: memory is what one rollout needs. The output appears whole or not at all.
"""

from __future__ import annotations

import gc
import json
import os
import secrets
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from otel_gym.rollouts import raw_rows
from otel_gym.rollouts.attachment import ATTACHED_KEYS, CAPTURE_KEY, attach
from otel_gym.rollouts.ids import maybe_rollout_id_from_run_body
from otel_gym.rollouts.perf import PERF_KEY
from otel_gym_jsonl.errors import InvalidRolloutIdError
from otel_gym_jsonl.files import sync_directory

_BUFFER = 1 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """A line that was carried over unchanged: its number, from 1, and why."""

    line: int
    reason: str


@dataclass(slots=True)
class Totals:
    """What was done: rows in the file, rows attached, their calls, and how many rows have which gap of the capture."""

    rows: int = 0
    attached: int = 0
    calls: int = 0
    gaps: Counter[str] = field(default_factory=Counter)

    @property
    def complete(self) -> bool:
        """Whether every row has an attachment without a gap."""
        return self.attached == self.rows and not self.gaps


def attach_file(
    source: Path,
    target: Path,
    capture_dirs: Sequence[Path],
    totals: Totals,
    *,
    include_payloads: bool = True,
) -> Generator[Damage, None, None]:
    """Write `target`, the rows of `source` with their attachments, and yield each line that is carried over unchanged.

    A row keeps the bytes of everything but the attached keys. The target appears, or is replaced, when the iterator
    is exhausted; if it is not, or something fails, nothing is left of it.

    Args:
        totals: counts up as rows are read.

    Raises:
        OSError: a file cannot be read or written.
    """
    with source.open("rb", buffering=_BUFFER) as rows, _appearing(target) as out:
        for number, line in enumerate(rows, 1):
            if line.isspace():
                out.write(line)
                continue
            totals.rows += 1
            try:
                with _without_collector():
                    out.writelines(_attached(line, capture_dirs, totals, include_payloads))
            except ValueError as exc:
                out.write(line)
                yield Damage(number, _why(exc))


def _attached(line: bytes, capture_dirs: Sequence[Path], totals: Totals, include_payloads: bool) -> list[bytes]:
    row = raw_rows.parse(line.rstrip())
    if maybe_rollout_id_from_run_body(row) is None:
        raise ValueError("it names no rollout: _ng_task_index and _ng_rollout_index, or _ng_rollout_id, are missing")
    perf = row.get(PERF_KEY)
    latency = perf.get("total_latency_ms") if isinstance(perf, dict) else None
    result = attach(row, row, capture_dirs, include_payloads=include_payloads, rollout_latency_ms=latency)
    changed = {key: result[key] for key in ATTACHED_KEYS if key in result and result[key] is not row.get(key)}
    pieces = raw_rows.replace(line, changed)
    capture: dict[str, Any] = result[CAPTURE_KEY]
    totals.attached += 1
    totals.calls += len(capture["calls"])
    totals.gaps.update({gap["code"] for gap in capture.get("gaps", ())})
    return pieces


@contextmanager
def _without_collector() -> Iterator[None]:
    """A rollout is many thousand objects and no cycle: a collector that goes through them costs a fifth for nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _why(error: ValueError) -> str:
    if isinstance(error, InvalidRolloutIdError):
        return f"its rollout id is {error.rollout_id!r}, which cannot name a capture file"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.removesuffix(' at')} at character {error.pos + 1:,}"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start + 1:,} is no UTF-8"
    return str(error)


@contextmanager
def _appearing(target: Path) -> Iterator[BinaryIO]:
    """A file that takes its name when the block has ended well, durably; else it was never there."""
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb", buffering=_BUFFER) as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        beside.replace(target)
        sync_directory(target.parent)
    finally:
        beside.unlink(missing_ok=True)
