"""The directory of capture files, with the API of the reference's `CaptureStore`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from otel_gym_jsonl import json_text, reader
from otel_gym_jsonl.errors import CaptureWriteError, InvalidRolloutIdError
from otel_gym_jsonl.files import (
    CaptureFile,
    capture_path,
    captured_id,
    is_marked,
    is_rollout_id,
    make_directory,
    marker_path,
    sync_directory,
)
from otel_gym_jsonl.markers import Markers


class CaptureStore:
    """Records of model calls, one append-only JSONL file a rollout.

    Every method blocks on the disk and on file locks: call it off the event loop.

    A marker that the disk refuses is owed: it is tried again with every later append and once a second, on a thread
    that lives only while one is owed, and once more when the process ends.

    Args:
        directory: absolute path of the capture directory; made when missing.

    Attributes:
        directory: the path.
        markers: puts markers in place; `markers.put(rollout_id)` marks a rollout that has lost a record elsewhere.

    Raises:
        ValueError: the path is not absolute.
        OSError: the directory cannot be made.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        if not self.directory.is_absolute():
            raise ValueError(f"capture directory {str(directory)!r} is not absolute: give the full path")
        make_directory(self.directory)
        self.markers = Markers(self.directory)

    def path_for(self, rollout_id: str) -> Path:
        """The capture file of a rollout, there or not; InvalidRolloutIdError for an id outside `[A-Za-z0-9._-]+`."""
        return capture_path(self.directory, rollout_id)

    def marker_for(self, rollout_id: str) -> Path:
        """The file whose existence says that a record of this rollout could not be written."""
        return marker_path(self.directory, rollout_id)

    def is_incomplete(self, rollout_id: str) -> bool:
        """Whether a record of this rollout is known to be missing."""
        return is_marked(self.directory, rollout_id)

    def rollout_ids(self) -> Iterator[str]:
        """The rollouts that have a capture file, sorted; a file whose name holds no id is none."""
        with os.scandir(self.directory) as entries:
            ids = [rollout_id for entry in entries if (rollout_id := captured_id(entry.name)) is not None]
        yield from sorted(ids)

    def read(self, rollout_id: str) -> list[dict[str, Any]]:
        """Every record in append order; empty without a file.

        Raises:
            DamagedRecordError: a line is no record.
        """
        return reader.read(self.path_for(rollout_id))

    def read_available(self, rollout_id: str) -> tuple[list[tuple[int, dict[str, Any]]], int]:
        """`([(index, record)], damaged)`: what can be read, and how many lines cannot; the index counts those too."""
        return reader.read_available(self.path_for(rollout_id))

    def append(self, rollout_id: str, record: dict[str, Any]) -> None:
        """Append one record; when this returns it is durable.

        Raises:
            ValueError: the record cannot be written as JSON, or calls of the id are not captured (`append_lines`).
            CaptureWriteError: the disk refused; the rollout is marked incomplete.
        """
        self.append_lines(rollout_id, [json_text.dumps(record) + b"\n"])

    def append_lines(self, rollout_id: str, lines: Iterable[bytes]) -> None:
        """Append whole lines, each with its newline, under one lock and one fsync.

        Raises:
            ValueError: calls of the id are not captured: it begins with a dot or dash, holds anything but
                `[A-Za-z0-9._-]`, or leaves no room for a file name. (Reading is more lenient.)
            CaptureWriteError: the disk refused; the rollout is marked incomplete.
        """
        if not is_rollout_id(rollout_id):
            raise InvalidRolloutIdError(rollout_id)
        try:
            file = CaptureFile(self.directory, rollout_id)
            try:
                file.lock()
                file.append(b"".join(lines))
            finally:
                with contextlib.suppress(OSError):  # what was appended was fsynced
                    file.close()
        except OSError as exc:
            self.markers.put(rollout_id)
            raise CaptureWriteError(rollout_id, str(exc)) from exc
        self.markers.nudge()  # the disk takes what it gets

    def clear(self, rollout_ids: str | Iterable[str]) -> None:
        """Remove capture file and marker of exactly these rollouts (one id or several), whether or not they are there.

        Raises:
            ValueError: an id cannot name a file; nothing has been removed then.
        """
        ids = [rollout_ids] if isinstance(rollout_ids, str) else list(rollout_ids)
        paths = [path for rollout_id in ids for path in (self.path_for(rollout_id), self.marker_for(rollout_id))]
        self.markers.forget(ids)
        if sum(map(_removed, paths)):
            with contextlib.suppress(FileNotFoundError):  # the whole directory has gone
                sync_directory(self.directory)


def _removed(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
