"""What a `DirectorySink` has stored, read back and checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from otel_gym.errors import DamagedStagingError
from otel_gym.staging.chains import verify_chain
from otel_gym.staging.directory_sink import MANIFEST, RECORD, attachment_file, is_segment
from otel_gym.staging.records import StagedCallRecord


class Buffer(NamedTuple):
    """An attachment that was a buffer: `numpy.frombuffer(data, format).reshape(shape)` is the array again.

    Attributes:
        data: in C order.
        format: of an item, as `struct` and NumPy write it.
        shape: empty for a single item.
    """

    data: bytes
    format: str
    shape: tuple[int, ...]


class StagedCall(NamedTuple):
    """A call that was staged.

    Attributes:
        record: its digests are checked.
        attachments: by name: bytes as bytes, buffers as `Buffer`, the rest as JSON has it.
    """

    record: StagedCallRecord
    attachments: dict[str, Any]


class StagedCalls:
    """The calls below a `DirectorySink`'s directory; only whole ones can be found there.

    Args:
        directory: the sink's; one that is missing has no calls.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)

    def rollout_ids(self) -> list[str]:
        """Every rollout with a staged call, sorted."""
        return _folders(self.directory)

    def staging_keys(self, rollout_id: str) -> list[str]:
        """The keys of a rollout's calls, sorted; the order says nothing about the chain."""
        if not is_segment(rollout_id):
            raise ValueError(f"rollout id {rollout_id!r:.80} cannot name a folder")
        return [f"{rollout_id}/{call_id}" for call_id in _folders(self.directory / rollout_id)]

    def read(self, staging_key: str) -> StagedCall:
        """One call.

        Args:
            staging_key: `<rollout_id>/<model_call_id>`, as the call's coordinates give it.

        Raises:
            FileNotFoundError: no such call is staged.
            DamagedStagingError: a file is not what was written.
            ValueError: no key of this sink.
        """
        rollout_id, _, call_id = staging_key.partition("/")
        if not (is_segment(rollout_id) and is_segment(call_id)):
            raise ValueError(f"{staging_key!r:.200} is no staging key of this sink: <rollout id>/<call id>")
        folder = self.directory / rollout_id / call_id
        text = (folder / RECORD).read_bytes()
        try:
            record = StagedCallRecord.model_validate_json(text)
            if (record.rollout_id, record.model_call_id) != (rollout_id, call_id):
                raise ValueError("the record is of another call")
            manifest = json.loads((folder / MANIFEST).read_bytes())
            attachments = {entry["name"]: _attachment(folder, number, entry) for number, entry in enumerate(manifest)}
        except (ValidationError, ValueError, KeyError, TypeError, FileNotFoundError) as error:
            raise DamagedStagingError(folder, f"{type(error).__name__}: {error}") from error
        return StagedCall(record, attachments)

    def token_ids(self, staging_chain: Iterable[str]) -> list[int]:
        """All tokens of a chain: what an admission with this `staging_chain` wants its prompt to begin with.

        Args:
            staging_chain: keys, the root's first.

        Raises:
            ValueError: the calls are no chain; else as `read`.
        """
        return verify_chain(self.read(key).record for key in staging_chain)


def _attachment(folder: Path, number: int, entry: dict[str, Any]) -> Any:
    data = (folder / attachment_file(number)).read_bytes()
    if len(data) != entry["size"] or hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise ValueError(f"attachment {entry['name']!r:.80} is not what was written")
    if entry["kind"] == "buffer":
        return Buffer(data, entry["format"], tuple(entry["shape"]))
    return data if entry["kind"] == "bytes" else json.loads(data)


def _folders(directory: Path) -> list[str]:
    if not directory.is_dir():
        return []
    return sorted(path.name for path in directory.iterdir() if is_segment(path.name) and path.is_dir())
