from __future__ import annotations

from typing import Any

import pytest

from otel_gym.staging import RolloutTokenCapture
from otel_gym.staging.replay import commit_of
from tests.staging.material import GENERATED, LOG_PROBS, PROMPT, KeepingSink, root

CAPTURE = RolloutTokenCapture(KeepingSink(), lambda: 1)
STAGED = CAPTURE.complete_call(CAPTURE.begin_call(root()), PROMPT, GENERATED, LOG_PROBS).model_dump(mode="json")
FAILED = CAPTURE.fail_call(CAPTURE.begin_call(root()), "x").model_dump(mode="json")


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        ({"ng_commit_coords": STAGED}, None),
        ({}, "worker_response_missing_commit_coordinates"),
        ({"ng_commit_coords": None}, "worker_response_missing_commit_coordinates"),
        ({"ng_commit_coords": FAILED}, "worker_capture_failed"),
        ({"ng_commit_coords": 5}, "invalid_worker_commit_coordinates"),
        ({"ng_commit_coords": {}}, "invalid_worker_commit_coordinates"),
        ({"ng_commit_coords": {**STAGED, "digest": "x"}}, "invalid_worker_commit_coordinates"),
        ({"ng_commit_coords": {**STAGED, "surprise": 1}}, "invalid_worker_commit_coordinates"),
        ({"ng_commit_coords": {**STAGED, "rollout_id": "other"}}, "invalid_worker_commit_coordinates"),
        ({"ng_commit_coords": {**STAGED, "model_call_id": "other"}}, "invalid_worker_commit_coordinates"),
        ({"ng_commit_coords": {**FAILED, "model_call_id": "other"}}, "invalid_worker_commit_coordinates"),
    ],
)
def test_what_a_worker_says_of_its_tokens(answer: dict[str, Any], failure: str | None) -> None:
    commit = commit_of(answer, root())
    assert failure == commit.failure
    assert (commit.coords is None) == (failure is not None)
