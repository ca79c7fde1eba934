"""A staging sink that keeps each call in a folder of its own: record and attachments, whole or not at all.

    <directory>/<rollout_id>/<model_call_id>/record.json        the record
                                             attachments.json   name, form, size and SHA-256 of each attachment
                                             attachment-0 …     their contents
    <directory>/.incoming/                                      folders that are being written

A folder is written and fsynced under `.incoming`, then renamed, and the folders above it are fsynced; what a killed
writer leaves stays under `.incoming`, where no reader looks.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from otel_gym.staging.digests import compute_extras_digest
from otel_gym.staging.records import StagedCallRecord, StageResult, staging_key

RECORD: Final = "record.json"
MANIFEST: Final = "attachments.json"
INCOMING: Final = ".incoming"

_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


class DirectorySink:
    """Stores staged calls below one directory. Safe to use from many threads and processes at once.

    Attachments may be bytes, whatever offers the buffer protocol (a NumPy array, a CPU tensor's `.numpy()`), or what
    JSON has; a call with any other is refused, and so is one that is there already.

    Args:
        directory: made when missing.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self._incoming = self.directory / INCOMING
        self._incoming.mkdir(parents=True, exist_ok=True)
        _fsync(self.directory)

    def stage(self, record: StagedCallRecord, *, attachments: Mapping[str, Any] | None = None) -> StageResult:
        """Store one call; the staging key is its folder's path below the directory.

        Raises:
            OSError: the disk refuses; nothing of the call is left where a reader would find it.
        """
        for name, value in (("rollout_id", record.rollout_id), ("model_call_id", record.model_call_id)):
            if not is_segment(value):
                return StageResult(ok=False, error=f"{name} {value!r:.80} cannot name a folder")
        try:
            stored = [_stored(name, value) for name, value in (attachments or {}).items()]
        except (TypeError, ValueError) as error:
            return StageResult(ok=False, error=str(error))
        folder = self._incoming / uuid.uuid4().hex
        folder.mkdir()
        try:
            _write(folder / RECORD, record.model_dump_json().encode("utf-8"))
            for number, attachment in enumerate(stored):
                _write(folder / attachment_file(number), attachment.data)
            manifest = [attachment.form for attachment in stored]
            _write(folder / MANIFEST, json.dumps(manifest, allow_nan=False).encode("utf-8"))
            _fsync(folder)
            return self._place(folder, record)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _place(self, folder: Path, record: StagedCallRecord) -> StageResult:
        rollout = self.directory / record.rollout_id
        rollout.mkdir(exist_ok=True)
        placed = rollout / record.model_call_id
        try:
            folder.rename(placed)
        except OSError:
            if not placed.exists():
                raise
            shutil.rmtree(folder, ignore_errors=True)
            return StageResult(ok=False, error=f"call {record.model_call_id!r} is staged already")
        try:
            _fsync(rollout)
            _fsync(self.directory)  # by each call: another's mkdir may not have come so far
        except OSError:
            placed.rename(folder)  # a call that is reported as lost must not be found
            raise
        return StageResult(ok=True, staging_key=staging_key(record.rollout_id, record.model_call_id))


def attachment_file(number: int) -> str:
    """Name of the file of an attachment, by its place in the manifest."""
    return f"attachment-{number}"


def is_segment(text: str) -> bool:
    """Whether an id can be the name of a folder."""
    return _SEGMENT.fullmatch(text) is not None


class _Stored(NamedTuple):
    form: dict[str, Any]
    data: bytes | memoryview


def _stored(name: object, value: object) -> _Stored:
    """An attachment as it is written, and what the manifest says of it."""
    if type(name) is not str:
        raise TypeError(f"attachments have texts for names, got {type(name).__name__}")
    name.encode("utf-8")
    form: dict[str, Any]
    data: bytes | memoryview
    if isinstance(value, bytes):
        form, data = {"kind": "bytes"}, value
    elif (view := _buffer(value)) is not None:
        form = {"kind": "buffer", "format": view.format, "shape": list(view.shape or ())}
        data = view.cast("B") if view.c_contiguous and view.ndim and view.nbytes else view.tobytes()
    else:
        try:
            compute_extras_digest({name: value})
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(
                f"attachment {name!r:.80} is no bytes, no buffer and no JSON ({type(value).__name__}: {error}); "
                "give a tensor as an array in main memory"
            ) from None
        form, data = {"kind": "json"}, json.dumps(value).encode("utf-8")
    sha256 = hashlib.sha256(data).hexdigest()
    return _Stored({"name": name, **form, "size": len(data), "sha256": sha256}, data)


def _buffer(value: object) -> memoryview | None:
    try:
        return memoryview(value)  # type: ignore[arg-type]  # asking is how one learns whether it has a buffer
    except TypeError:
        return None


def _write(path: Path, data: bytes | memoryview) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _fsync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
