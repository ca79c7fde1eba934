"""One pass over everything that lies in a capture directory, looking for what is wrong with it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from otel_gym.cli import findings as found
from otel_gym.cli.capture_directory import calls_of, natural, unattributed_calls, unattributed_words
from otel_gym.cli.findings import Finding
from otel_gym.cli.terminal import plural
from otel_gym.collecting import COLLECT_LOCK_FILE
from otel_gym_jsonl.files import CAPTURE_SUFFIX, captured_id, marked_id
from otel_gym_jsonl.model_calls import ModelCallRecord
from otel_gym_jsonl.reader import LineTooLongError

_OWN_FILES = {".otel-gym-run-id", COLLECT_LOCK_FILE}
_CALL_ID = re.compile(r"[0-9a-f]{32}")


class RecentIds:
    """The ids seen of late: at least the last `span`, at most twice as many; 16 bytes each and their set's share."""

    def __init__(self, span: int = 131_072) -> None:
        self._span = span
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()

    def add(self, call_id: bytes) -> bool:
        """Take an id in; True if it had been there."""
        if call_id in self._young or call_id in self._old:
            return True
        self._young.add(call_id)
        if len(self._young) >= self._span:
            self._young, self._old = set(), self._young
        return False


class Inspection:
    """Iterate over `findings()` once; the counts are those of what has been seen so far.

    Attributes:
        rollouts, calls, bytes: what there is, in capture files.
        problems, notes: how many findings of each severity.
        seen: the codes found, in the order in which they first were.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.rollouts = self.calls = self.bytes = 0
        self.problems = self.notes = 0
        self.seen: dict[str, None] = {}
        self._first_calls: dict[bytes, str] = {}

    def findings(self) -> Iterator[Finding]:
        """Every finding, file by file."""
        for finding in self._all():
            self.seen.setdefault(finding.code)
            if finding.severity == "problem":
                self.problems += 1
            else:
                self.notes += 1
            yield finding

    def _all(self) -> Iterator[Finding]:
        names = sorted((path.name for path in self.directory.iterdir()), key=_by_rollout)
        there = set(names)
        for name in names:
            marker_id = marked_id(name)
            if captured_id(name) is not None:
                self.rollouts += 1
                yield from self._capture_file(name)
            elif marker_id is not None:
                has_file = marker_id + CAPTURE_SUFFIX in there
                self.rollouts += not has_file
                yield from self._marker(name, has_file)
            elif name not in _OWN_FILES:
                yield Finding(name, found.FOREIGN_FILE, detail=_kind(self.directory / name))
            elif name == COLLECT_LOCK_FILE:
                yield Finding(name, found.COLLECTING)
                if lost := unattributed_calls(self.directory):
                    yield Finding(name, found.UNATTRIBUTED, detail=unattributed_words(lost))

    def _marker(self, name: str, has_file: bool) -> Iterator[Finding]:
        path = self.directory / name
        yield Finding(name, found.INCOMPLETE, detail="" if has_file else "and there is no capture file at all")
        try:
            status = path.stat()
        except OSError:
            return
        if status.st_size or not stat.S_ISREG(status.st_mode):
            yield Finding(name, found.ODD_MARKER, detail=_kind(path))

    def _capture_file(self, name: str) -> Iterator[Finding]:
        path = self.directory / name
        try:
            status = path.stat()
        except OSError as exc:
            yield Finding(name, found.UNREADABLE_FILE, detail=exc.strerror or str(exc))
            return
        if stat.S_ISREG(status.st_mode):
            if status.st_mode & stat.S_IWOTH:
                yield Finding(name, found.OPEN_PERMISSIONS, detail=stat.filemode(status.st_mode))
            if not status.st_mode & stat.S_IWUSR:
                yield Finding(name, found.READ_ONLY, detail=stat.filemode(status.st_mode))
            self.bytes += status.st_size
        try:
            yield from self._lines(name, path)
        except OSError as exc:
            yield Finding(name, found.UNREADABLE_FILE, detail=exc.strerror or str(exc))

    def _lines(self, name: str, path: Path) -> Iterator[Finding]:
        ids = RecentIds()
        lines = 0
        for line, call in calls_of(path):
            lines += 1
            if isinstance(call, ModelCallRecord):
                self.calls += 1
                yield from self._call_id(name, line.number, call, ids)
                if not line.ended:
                    yield Finding(name, found.NO_NEWLINE, line.number)
            elif isinstance(line.error, LineTooLongError):
                yield Finding(name, found.UNCHECKED_LINE, line.number, call.reason)
            elif line.record is not None:
                yield Finding(name, found.NO_CALL, line.number, call.reason)
            else:
                code = found.TORN_LINE if line.torn else found.DAMAGED_LINE
                yield Finding(name, code, line.number, f"{call.reason} ({plural(line.size, 'byte')})")
        if not lines:
            yield Finding(
                name, found.EMPTY_FILE, detail="the file is empty" if not path.stat().st_size else "blank lines only"
            )

    def _call_id(self, name: str, number: int, call: ModelCallRecord, ids: RecentIds) -> Iterator[Finding]:
        call_id = call.model_call_id or ""
        if not _CALL_ID.fullmatch(call_id):
            yield Finding(name, found.NO_CALL_ID, number, f"it is {call_id[:80]!r}" if call_id else "")
            return
        packed = bytes.fromhex(call_id)
        if ids.add(packed):
            yield Finding(name, found.REPEATED_CALL, number, call_id)
        elif call.call_index == 0:
            other = self._first_calls.setdefault(packed, name)
            if other != name:
                yield Finding(name, found.COPIED_FILE, number, f"it begins with the same call as {other}")


def _by_rollout(name: str) -> tuple[list[tuple[int, int, str]], bool, str]:
    """A sort key: rollout by rollout, the capture file before its marker."""
    marker_id = marked_id(name)
    return natural(marker_id or captured_id(name) or name), marker_id is not None, name


def _kind(path: Path) -> str:
    """What sort of thing a directory entry is, in a word or two."""
    try:
        status = os.lstat(path)
    except OSError as exc:
        return exc.strerror or str(exc)
    if stat.S_ISREG(status.st_mode):
        return plural(status.st_size, "byte")
    if stat.S_ISDIR(status.st_mode):
        return "a directory"
    return "a symbolic link" if stat.S_ISLNK(status.st_mode) else "a special file"
