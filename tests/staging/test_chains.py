from __future__ import annotations

import pytest

from otel_gym.staging import StagedCallRecord, verify_chain
from tests.staging.material import chain_records


def test_a_chain_holds_all_tokens_from_first_to_last() -> None:
    tokens = [100, 200, 300, 400, 101, 201, 301, 401, 102, 202, 302, 402]
    records = chain_records(3)
    assert tokens == verify_chain(records)
    assert tokens == verify_chain(record.base_snapshot() for record in records)
    assert [] == verify_chain([])


def changed(record: StagedCallRecord, **fields: object) -> StagedCallRecord:
    return StagedCallRecord.model_construct(
        **{**{name: getattr(record, name) for name in record.model_fields_set}, **fields}
    )


@pytest.mark.parametrize(
    ("place", "fields"),
    [
        (0, {"token_ids_delta": [100, 200, 300, 401]}),
        (1, {"token_ids_delta": [101, 201, 301, 402]}),
        (1, {"parent_call_id": "other"}),
        (1, {"prev_len": 5}),
        (1, {"rollout_id": "other"}),
        (1, {"chain_hash": "0" * 64}),
        (2, {"cumulative_hash": "0" * 64}),
        (2, {"parent_call_id": None}),
    ],
)
def test_a_call_that_does_not_continue_the_one_before_breaks_the_chain(place: int, fields: dict[str, object]) -> None:
    records = chain_records(3)
    records[place] = changed(records[place], **fields)
    with pytest.raises(ValueError):
        verify_chain(records)


@pytest.mark.parametrize("order", [(1, 2), (0, 2), (0, 0), (1, 0), (2, 1, 0)])
def test_a_chain_has_all_its_calls_in_order(order: tuple[int, ...]) -> None:
    records = chain_records(3)
    with pytest.raises(ValueError, match="continues"):
        verify_chain(records[place] for place in order)
