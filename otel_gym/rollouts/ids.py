"""Which rollout a run belongs to, and the URLs under which its model calls are captured.

The sending side of the prefix `/ng-rollout/<id>`: what collectors and agents build; the receiving side, which takes it
off a request's path, is `otel_gym.correlation`. Source: `rollouts.md`, "Ids and URLs".
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from otel_gym_jsonl.errors import InvalidRolloutIdError
from otel_gym_jsonl.files import is_rollout_id
from otel_gym_jsonl.store import CaptureStore

__all__ = [
    "ATTEMPT_INDEX_KEY",
    "ROLLOUT_ID_KEY",
    "ROLLOUT_INDEX_KEY",
    "TASK_INDEX_KEY",
    "apply_rollout_prefix",
    "clear_rollouts",
    "maybe_rollout_id_from_run_body",
    "rollout_path_prefix",
]

TASK_INDEX_KEY = "_ng_task_index"
ROLLOUT_INDEX_KEY = "_ng_rollout_index"
ATTEMPT_INDEX_KEY = "_ng_attempt_index"
ROLLOUT_ID_KEY = "_ng_rollout_id"

_PREFIX = "/ng-rollout/"
_TOKEN_CAPTURE_SEGMENT = "/training-token-capture"  # noqa: S105 - a path segment, nothing secret
_EXPLICIT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_log = logging.getLogger(__name__)


def maybe_rollout_id_from_run_body(body: object) -> str | None:
    """The rollout id of a run body, None where the body does not name one.

    An explicit `_ng_rollout_id` counts first, then `{_ng_task_index}-{_ng_rollout_index}`; an `_ng_attempt_index` above
    zero adds `-a{attempt}` to either. Indices are ints from 0 on (no bools): with any other there is no id, and an
    attempt that is no int above zero adds nothing (divergence 25).

    Args:
        body: a mapping, or a pydantic model with these keys as aliases or extra fields; of anything else the id is
            None. A model that offers `capture_rollout_id` (a value or a method without arguments) is taken at its
            word: that is the whole id, unless it is None.

    Raises:
        InvalidRolloutIdError: an explicit id that does not match `[A-Za-z0-9][A-Za-z0-9._-]*` (also a ValueError).
    """
    if isinstance(body, BaseModel):
        offered = getattr(body, "capture_rollout_id", None)
        offered = offered() if callable(offered) else offered
        if offered is not None:
            return _checked(offered)
        keys: Mapping[str, Any] = _keys_of_model(body)
    elif isinstance(body, Mapping):
        keys = body
    else:
        return None
    explicit = keys.get(ROLLOUT_ID_KEY)
    if explicit is not None:
        rollout_id = _checked(explicit)
    else:
        task, rollout = keys.get(TASK_INDEX_KEY), keys.get(ROLLOUT_INDEX_KEY)
        if not (_is_index(task) and _is_index(rollout)):
            return None
        rollout_id = f"{task}-{rollout}"
    attempt = keys.get(ATTEMPT_INDEX_KEY)
    return f"{rollout_id}-a{attempt}" if _is_index(attempt) and attempt != 0 else rollout_id


def rollout_path_prefix(rollout_id: str | None, token_capture: bool = False) -> str:
    """`/ng-rollout/<id>`, with `/training-token-capture` behind it if asked for; "" without an id."""
    if not rollout_id:
        return ""
    return f"{_PREFIX}{rollout_id}{_TOKEN_CAPTURE_SEGMENT if token_capture else ''}"


def apply_rollout_prefix(base_url: str, rollout_id: str | None, token_capture: bool = False) -> str:
    """A model server's base URL with the rollout's prefix behind it; without an id the URL as it was given.

    Trailing slashes of the URL go: `apply_rollout_prefix("http://h:1/", "3-1")` is `http://h:1/ng-rollout/3-1`.
    """
    prefix = rollout_path_prefix(rollout_id, token_capture)
    return f"{base_url.rstrip('/')}{prefix}" if prefix else base_url


def clear_rollouts(rows: Iterable[object], capture_dirs: Iterable[str | Path]) -> None:
    """Remove the capture files and markers of exactly the rollout attempts that `rows` are about to run.

    A row without an id, or with one that cannot name a file, has no capture of its own to clear: it is passed over,
    with a warning where its id is invalid (divergence 25).

    Args:
        rows: run bodies, as for `maybe_rollout_id_from_run_body`.
        capture_dirs: every directory that model servers write to.

    Raises:
        OSError: a file that could not be removed.
    """
    rollout_ids: dict[str, None] = {}
    for row in rows:
        try:
            rollout_id = maybe_rollout_id_from_run_body(row)
            if rollout_id is None:
                continue
            if not is_rollout_id(rollout_id):  # too long for a file name: never captured either
                raise InvalidRolloutIdError(rollout_id)
        except InvalidRolloutIdError as error:
            _log.warning("nothing is cleared for a row: %s", error)
            continue
        rollout_ids[rollout_id] = None
    for directory in capture_dirs:
        CaptureStore(directory).clear(rollout_ids)


def _checked(rollout_id: object) -> str:
    # fullmatch: "$" would let a trailing newline pass.
    if not isinstance(rollout_id, str) or not _EXPLICIT_ID.fullmatch(rollout_id):
        raise InvalidRolloutIdError(rollout_id)
    return rollout_id


def _is_index(value: object) -> bool:
    return type(value) is int and value >= 0


def _keys_of_model(model: BaseModel) -> dict[str, Any]:
    """The row keys of a model: an attribute cannot begin with an underscore, so aliases and extras carry them."""
    keys = dict(model.model_extra or {})
    for name, field in type(model).model_fields.items():
        for alias in (field.alias, field.validation_alias, field.serialization_alias):
            if isinstance(alias, str):
                keys[alias] = getattr(model, name)
    return keys
