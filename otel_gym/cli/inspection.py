"""What is wrong in a capture directory: one pass over everything, and a second one where calls may stand twice."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from otel_gym.cli import findings as found
from otel_gym.cli.capture_directory import calls_of, natural, unattributed_calls, unattributed_words
from otel_gym.cli.findings import Finding
from otel_gym.cli.repeated_calls import MAX_SUSPECTS, Place, RepeatedCalls
from otel_gym.cli.terminal import plural
from otel_gym.collecting import COLLECT_LOCK_FILE
from otel_gym_jsonl.files import CAPTURE_SUFFIX, captured_id, marked_id
from otel_gym_jsonl.model_calls import ModelCallRecord
from otel_gym_jsonl.reader import LineTooLongError

_OWN_FILES = {".otel-gym-run-id", COLLECT_LOCK_FILE}
_CALL_ID = re.compile(r"[0-9a-f]{32}")


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
        self._repeated = RepeatedCalls()

    def findings(self) -> Iterator[Finding]:
        """Every finding, file by file; those of repeated calls come last."""
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
                yield from self._capture_file(name)
            elif marker_id is not None:
                yield from self._marker(name, marker_id + CAPTURE_SUFFIX in there)
            elif name not in _OWN_FILES:
                yield Finding(name, found.FOREIGN_FILE, detail=_kind(self.directory / name))
            elif name == COLLECT_LOCK_FILE:
                yield Finding(name, found.COLLECTING)
                if lost := unattributed_calls(self.directory):
                    yield Finding(name, found.UNATTRIBUTED, detail=unattributed_words(lost))
        yield from self._repeated_calls(names)

    def _marker(self, name: str, has_file: bool) -> Iterator[Finding]:
        path = self.directory / name
        try:
            status = path.lstat()
        except FileNotFoundError:  # cleared meanwhile
            return
        self.rollouts += not has_file
        yield Finding(name, found.INCOMPLETE, detail="" if has_file else "and there is no capture file at all")
        if status.st_size or not stat.S_ISREG(status.st_mode):
            yield Finding(name, found.ODD_MARKER, detail=_kind(path))

    def _capture_file(self, name: str) -> Iterator[Finding]:
        path = self.directory / name
        try:
            status = path.stat()
        except OSError as exc:
            if os.path.lexists(path):  # else the rollout was cleared meanwhile
                self.rollouts += 1
                yield Finding(name, found.UNREADABLE_FILE, detail=exc.strerror or str(exc))
            return
        self.rollouts += 1
        if stat.S_ISREG(status.st_mode):
            if status.st_mode & stat.S_IWOTH:
                yield Finding(name, found.OPEN_PERMISSIONS, detail=stat.filemode(status.st_mode))
            if not status.st_mode & stat.S_IWUSR:
                yield Finding(name, found.READ_ONLY, detail=stat.filemode(status.st_mode))
            self.bytes += status.st_size
        try:
            yield from self._lines(name, path, status.st_size)
        except OSError as exc:
            yield Finding(name, found.UNREADABLE_FILE, detail=exc.strerror or str(exc))

    def _lines(self, name: str, path: Path, size: int) -> Iterator[Finding]:
        lines = 0
        for line, call in calls_of(path):
            lines += 1
            if isinstance(call, ModelCallRecord):
                self.calls += 1
                call_id = _packed(call)
                if call_id is not None:
                    self._repeated.pass_by(call_id)
                else:
                    shown = f"it is {call.model_call_id[:80]!r}" if call.model_call_id else ""
                    yield Finding(name, found.NO_CALL_ID, line.number, shown)
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
            yield Finding(name, found.EMPTY_FILE, detail="blank lines only" if size else "the file is empty")

    def _repeated_calls(self, names: Iterable[str]) -> Iterator[Finding]:
        """Read the files again, where a call may stand in two places."""
        if self._repeated.suspects:
            for repeat in self._repeated.repeats(self._places(names)):
                file, line, first = repeat.place.file, repeat.place.line, repeat.first
                if repeat.begins_copy:
                    yield Finding(file, found.COPIED_FILE, line, f"it begins with the same call as {first.file}")
                else:
                    where = f"line {first.line}" if first.file == file else f"{first.file}:{first.line}"
                    yield Finding(file, found.REPEATED_CALL, line, f"{repeat.call_id.hex()}, as in {where}")
        if self._repeated.too_many:
            yield Finding(".", found.UNCHECKED_IDS, detail=f"more than {MAX_SUSPECTS:,}")

    def _places(self, names: Iterable[str]) -> Iterator[tuple[bytes, Place]]:
        for name in names:
            if captured_id(name) is None:
                continue
            with contextlib.suppress(OSError):  # it was said the first time
                for line, call in calls_of(self.directory / name):
                    if isinstance(call, ModelCallRecord) and (call_id := _packed(call)) is not None:
                        yield call_id, Place(name, line.number, call.call_index == 0)


def _packed(call: ModelCallRecord) -> bytes | None:
    """The id of a call in 16 bytes; None where it has none that this capture would make."""
    call_id = call.model_call_id or ""
    return bytes.fromhex(call_id) if _CALL_ID.fullmatch(call_id) else None


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
