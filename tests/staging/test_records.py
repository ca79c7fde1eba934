from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from otel_gym.staging import (
    CallRecord,
    CaptureAdmission,
    RolloutTokenCapture,
    StagedBaseSnapshot,
    StagedCallRecord,
    compute_extras_digest,
)
from tests.staging.material import KeepingSink, chain_records, root


def record(**more: Any) -> StagedCallRecord:
    sink = KeepingSink()
    capture = RolloutTokenCapture(sink, lambda: 2**64 - 1)
    capture.complete_call(capture.begin_call(root()), [0, 2**64 - 1], [5], [-0.1], **more)
    return sink.records[0]


@pytest.mark.parametrize(
    "extras", [None, {}, {"routed_experts": "nrlre1:int8:1x1x1:AQ==", "x": [1, 1.0, -0.0, None, "é"]}]
)
def test_a_record_is_the_same_after_a_journey_as_json(extras: dict[str, Any] | None) -> None:
    staged = record(extras=extras)
    assert staged == StagedCallRecord.model_validate_json(staged.model_dump_json())
    assert staged == StagedCallRecord.model_validate(staged.model_dump(mode="json"))


CHANGES: dict[str, Any] = {
    "rollout_id": "other",
    "model_call_id": "other",
    "weight_version": 8,
    "token_ids_delta": [0, 1, 5],
    "token_mask_delta": [0.0, 1.0, 1.0],
    "generation_log_probs_delta": [0.0, 0.0, -0.2],
    "extras_digest": "0" * 64,
    "chain_hash": "0" * 64,
    "cumulative_hash": "0" * 64,
    "digest": "0" * 64,
    "prev_len": 1,
    "delta_len": 4,
    "schema_version": 1,
    "extras": {"x": 1},
    "surprise": 1,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_record_that_was_changed_is_refused(name: str) -> None:
    fields = {**record().model_dump(mode="json"), name: CHANGES[name]}
    with pytest.raises(ValidationError):
        StagedCallRecord.model_validate(fields)


def test_a_base_snapshot_is_the_record_without_its_extras() -> None:
    staged = record(extras={"x": 1})
    snapshot = staged.base_snapshot()
    fields = staged.model_dump(mode="json")
    assert {"x": 1} == fields.pop("extras")
    assert fields == snapshot.model_dump(mode="json")
    assert compute_extras_digest({"x": 1}) == snapshot.extras_digest
    assert snapshot == StagedBaseSnapshot.model_validate_json(snapshot.model_dump_json())
    with pytest.raises(ValidationError):
        StagedBaseSnapshot.model_validate({**fields, "extras": None})


def test_records_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        record().weight_version = 3


@pytest.mark.parametrize(
    "bad", ["[1, NaN]", "[1.5, 2]", '["1", 2]', "[true, 2]", "[-1, 2]", "[18446744073709551616, 2]"]
)
def test_an_admission_takes_exact_ids_only(bad: str) -> None:
    fields = {"rollout_id": "r", "model_call_id": "c", "parent_call_id": "p", "mode": "token_in", "prev_len": 2}
    text = json.dumps({**fields, "parent_chain_hash": "0" * 64})[:-1] + f', "required_prefix_token_ids": {bad}}}'
    with pytest.raises(ValidationError):
        CaptureAdmission.model_validate_json(text)


def test_a_ledgers_row_is_made_of_coordinates() -> None:
    shared = [name for name in CallRecord.model_fields if name in StagedCallRecord.model_fields]
    rows = [
        CallRecord(
            **{name: getattr(staged, name) for name in shared},
            staging_key=f"r/{staged.model_call_id}",
            response_id="resp",
        )
        for staged in chain_records(2)
    ]
    assert [("text", None, 0), ("token_in", "c0", 4)] == [(row.mode, row.parent_call_id, row.prev_len) for row in rows]
