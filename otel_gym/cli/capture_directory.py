"""What lies in a capture directory, for the commands that look at one. Nothing here writes."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_gym import collecting
from otel_gym.cli.terminal import harmless
from otel_gym_jsonl.errors import DamagedRecordError
from otel_gym_jsonl.files import CAPTURE_SUFFIX, capture_path, captured_id, is_marked, marked_id
from otel_gym_jsonl.metrics import ModelCallMetrics
from otel_gym_jsonl.model_calls import ModelCallRecord, iter_model_calls
from otel_gym_jsonl.reader import Line

LOCK_TIMEOUT_S = 5.0
"""How long a command waits for a file that another process keeps locked."""

MAX_LINE_BYTES = 1 << 30
"""A longer line is not looked into, so that a command's memory has a bound."""

NO_RECORDS = "model_call_capture_no_records"
RECORDS_UNREADABLE = "model_call_capture_records_unreadable"
INCOMPLETE = "model_call_capture_incomplete"
UNREADABLE = "model_call_capture_unreadable"
"""The gap codes of an attachment, in the order in which they are listed."""

GAPS = {
    NO_RECORDS: "no records: the rollout has no call on disk. Did its model calls carry the /ng-rollout/<id> prefix?",
    RECORDS_UNREADABLE: "unreadable: lines that are damaged, or hold no call. 'otel-gym verify' names each.",
    INCOMPLETE: "incomplete: the marker file says that at least one call could not be written (a full or failing "
    "disk, a body beyond the limit). Run the rollout again, or leave it out.",
    UNREADABLE: "file unreadable: it cannot be opened, or another process keeps it locked.",
}

UNATTRIBUTED = {
    "no_prefix": "without the /ng-rollout/<id> prefix",
    "bad_id": "under an id that cannot name a file",
    "before_root": "with the prefix before the server's root path",
    "websocket": "over a websocket",
    "no_asyncio": "at a server on trio",
}
"""Why model calls belong to no rollout, as model servers tell a collection."""

_MAX_CATEGORIES = 64
_OTHER = "(other)"


def directory_to_make(argument: str) -> Path:
    """The directory that an option names for captures, whether or not it is there: in full, from the current one on.

    So processes that change their directory later, as workers may, mean the same.

    Raises:
        ArgumentTypeError: it is empty, as a variable of a shell may be, and would mean the current directory.
    """
    if not argument:
        raise argparse.ArgumentTypeError("got ''; allowed: a directory; name one, such as ./model-calls")
    return Path(argument).absolute()


class NoDirectoryError(ValueError):
    """The argument of a command is no directory."""


def existing_directory(argument: str) -> Path:
    """The directory that a command was given.

    Raises:
        NoDirectoryError: it is none, or there is nothing of that name.
    """
    path = Path(argument)
    if path.is_dir():
        return path
    if path.exists():
        raise NoDirectoryError(f"{argument!r} is a file: give the directory that holds the *{CAPTURE_SUFFIX} files")
    raise NoDirectoryError(f"there is no directory {argument!r}")


def directory_to_list(argument: str) -> Path:
    """The directory that a command was given which looks at all that is in it.

    Raises:
        NoDirectoryError: as `existing_directory`, or it cannot be listed.
    """
    path = existing_directory(argument)
    try:
        os.scandir(path).close()
    except OSError as exc:
        raise NoDirectoryError(f"the directory {argument!r} cannot be listed: {exc.strerror or exc}") from None
    return path


def rollout_ids(directory: Path) -> list[str]:
    """The rollouts that have a capture file or a marker, `3-2` before `3-10`."""
    found = (captured_id(path.name) or marked_id(path.name) for path in directory.iterdir())
    return sorted({rollout_id for rollout_id in found if rollout_id is not None}, key=natural)


def unattributed_calls(directory: Path) -> dict[str, int]:
    """Model calls without a rollout that came while the last collection ran, or runs, by reason; most often none."""
    total = Counter[str]()
    with contextlib.suppress(OSError):
        for _, what in collecting.said(directory / collecting.COLLECT_LOCK_FILE):
            total.update(collecting.unattributed_calls(what))
    return dict(sorted(total.items()))


def unattributed_words(calls: Mapping[str, int]) -> str:
    """How many, and why."""
    number = sum(calls.values())
    why = ", ".join(f"{each:,} {UNATTRIBUTED.get(reason, harmless(reason))}" for reason, each in sorted(calls.items()))
    return f"{number:,} unattributed model {'call' if number == 1 else 'calls'} ({why})"


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key by which numbers within names count as numbers."""
    return [
        (0, int(part), part) if part.isascii() and part.isdigit() and len(part) < 20 else (1, 0, part)
        for part in re.split(r"([0-9]+)", name)
    ]


def calls_of(path: Path) -> Iterator[tuple[Line, ModelCallRecord | DamagedRecordError]]:
    """Each line of a capture file with its call or what is wrong with it, in bounded memory.

    Raises:
        OSError: the file is no regular one, cannot be opened, or stays locked (TimeoutError).
    """
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    yield from iter_model_calls(path, lock_timeout_s=LOCK_TIMEOUT_S, max_line_bytes=MAX_LINE_BYTES)


@dataclass(slots=True)
class Tally:
    """What a rollout's file holds, counted call by call."""

    rollout_id: str
    path: Path
    marker: bool
    metrics: ModelCallMetrics = field(default_factory=ModelCallMetrics)
    errors: dict[str, int] = field(default_factory=dict)
    unreadable_lines: int = 0
    failure: str | None = None

    @classmethod
    def of(cls, directory: Path, rollout_id: str) -> Tally:
        """An empty tally of a rollout."""
        return cls(rollout_id, capture_path(directory, rollout_id), is_marked(directory, rollout_id))

    @property
    def file(self) -> str | None:
        """The name of the capture file; None when there is none."""
        return self.path.name if os.path.lexists(self.path) else None

    @property
    def is_there(self) -> bool:
        """Whether anything is known of the rollout."""
        return self.marker or self.file is not None

    def calls(self) -> Iterator[tuple[Line, ModelCallRecord | DamagedRecordError]]:
        """Go over the file once, counting; a file that cannot be read ends it and is kept as `failure`."""
        try:
            for line, call in calls_of(self.path):
                if isinstance(call, ModelCallRecord):
                    self.metrics.add(call)
                    if call.error_category is not None:
                        self._count_error(call.error_category)
                else:
                    self.unreadable_lines += 1
                yield line, call
        except OSError as exc:
            self.failure = exc.strerror or str(exc)

    def gaps(self) -> list[dict[str, Any]]:
        """What is missing, as in an attachment: `{"code"}`, with a `detail` where there is one."""
        gaps: list[dict[str, Any]] = []
        if self.failure is not None:
            gaps.append({"code": UNREADABLE, "detail": self.failure})
        elif self.metrics.num_calls == 0 and self.unreadable_lines == 0:
            gaps.append({"code": NO_RECORDS})
        if self.unreadable_lines:
            gaps.append({"code": RECORDS_UNREADABLE, "detail": f"count={self.unreadable_lines}"})
        if self.marker:
            gaps.append({"code": INCOMPLETE})
        return gaps

    def _count_error(self, category: str) -> None:
        category = category[:80]
        if category not in self.errors and len(self.errors) >= _MAX_CATEGORIES:
            category = _OTHER
        self.errors[category] = self.errors.get(category, 0) + 1
