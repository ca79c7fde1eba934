"""A worker's word on whether a call's tokens are staged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from pydantic import ValidationError

from otel_gym.staging.records import CaptureAdmission, CommitCoords
from otel_gym.staging.replay.internal_fields import COMMIT_COORDS

Failure = Literal[
    "worker_response_missing_commit_coordinates",
    "worker_capture_failed",
    "invalid_worker_commit_coordinates",
]

MISSING: Final = "worker_response_missing_commit_coordinates"
FAILED: Final = "worker_capture_failed"
INVALID: Final = "invalid_worker_commit_coordinates"


class Commit(NamedTuple):
    """What the worker said.

    Attributes:
        coords: where the tokens are staged; None when they are not.
        failure: why they are not; None when they are.
        detail: more on the failure, for the log.
    """

    coords: CommitCoords | None
    failure: Failure | None
    detail: str = ""


def commit_of(answer: Mapping[str, Any], admission: CaptureAdmission) -> Commit:
    """Read the coordinates of a worker's answer, and compare them with what was asked for."""
    found = answer.get(COMMIT_COORDS)
    if found is None:
        return Commit(None, MISSING)
    try:
        coords = CommitCoords.model_validate(found)
    except ValidationError as error:
        return Commit(None, INVALID, str(error))
    for name in ("rollout_id", "model_call_id", "parent_call_id", "prev_len"):
        asked, said = getattr(admission, name), getattr(coords, name)
        if asked != said:
            return Commit(None, INVALID, f"{name} is {said!r:.80}, the admission's {asked!r:.80}")
    if coords.disposition == "capture_failed":
        return Commit(None, FAILED)
    return Commit(coords, None)
