"""Ids of traces and spans, derived from what is stored: a record and its span name each other, without a field for it.

One rollout is one trace, whether or not its agent sends a trace context, and a replay of its records gives the same
spans. Source: the trace specification, "Ids".
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from otel_gym.errors import SettingsError

RUN_ID_FILE: Final = ".otel-gym-run-id"
"""Name of the file in a capture directory that holds its run id: the seed of the ids of all its rollouts."""

_SEED: Final = b"otel-gym/v1"
_LONGEST_RUN_ID: Final = 1024
_NO_HARD_LINKS: Final = frozenset(
    {errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
)


class RolloutTrace(NamedTuple):
    """The ids of a rollout's trace and of its root span."""

    trace_id: int
    root_span_id: int


@lru_cache(maxsize=4096)
def rollout_trace(run_id: str, rollout_id: str) -> RolloutTrace:
    """The first 16 and the next 8 bytes of SHA-256 over `otel-gym/v1`, run id and rollout id, joined by NUL."""
    digest = hashlib.sha256(b"\0".join((_SEED, run_id.encode(), rollout_id.encode()))).digest()
    return RolloutTrace(int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big"))


def observed_span_id(run_id: str, rollout_id: str, *names: str) -> int:
    """Id of the span of what an agent observed in a rollout: as its root's, with more names behind the rollout id."""
    parts = (_SEED, *(part.encode("utf-8", "surrogatepass") for part in (run_id, rollout_id, *names)))
    return int.from_bytes(hashlib.sha256(b"\0".join(parts)).digest()[:8], "big")


def call_span_id(model_call_id: str) -> int:
    """Id of a call's span: the first 8 bytes of its `model_call_id`."""
    return int(model_call_id[:16], 16)


def run_id_of(directory: Path) -> str:
    """The run id of a capture directory, made when there is none yet.

    For start-up, never for a request. Whoever comes first makes it, and all others, in whatever process, get the same:
    the file is complete before it has its name, and never replaced.

    Raises:
        SettingsError: the file cannot be made or read, or holds nothing that could be a run id.
    """
    path = directory / RUN_ID_FILE
    try:
        if (stored := _stored(path)) is None:
            _make(path)
            stored = _stored(path)
    except OSError as error:
        raise SettingsError(
            f"{path}: the run id cannot be kept there ({error.strerror or error}); allowed: a directory that this "
            "process can write; change its owner or mode, set OTEL_GYM_RUN_ID, or OTEL_GYM_MIRROR=false"
        ) from None
    if stored is None or not is_run_id(stored):
        raise SettingsError(
            f"{path}: got {stored!r:.200}; allowed: one line of text; remove the file, and a new run id is made"
        )
    return stored


def is_run_id(text: str) -> bool:
    """Whether a text can seed ids: one line, not empty, without NUL (which parts it from the rollout id)."""
    return 0 < len(text) <= _LONGEST_RUN_ID and text.isprintable() and not text.isspace()


def _stored(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST_RUN_ID + 2).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None


def _make(path: Path) -> None:
    """Give the file its name when it is complete; whoever else has done so meanwhile was first."""
    temporary = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
    try:
        with temporary.open("xb") as file:
            file.write(os.urandom(16).hex().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            _rename_if_missing(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    _sync(path.parent)


def _rename_if_missing(temporary: Path, path: Path) -> None:
    """Where the file system has no hard links: look and rename under the directory's lock."""
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not path.exists():
            temporary.rename(path)
    finally:
        os.close(descriptor)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
