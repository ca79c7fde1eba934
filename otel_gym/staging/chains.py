"""A rollout's staged calls as one chain: whether each continues the one before, and which tokens they hold."""

from __future__ import annotations

from collections.abc import Iterable

from otel_gym.staging.digests import compute_chain_hash, hash_token_ids
from otel_gym.staging.records import StagedBaseSnapshot, StagedCallRecord


def verify_chain(records: Iterable[StagedCallRecord | StagedBaseSnapshot]) -> list[int]:
    """Check a chain from its root to its last call, by parents, lengths and hashes.

    Args:
        records: the root first, each the parent of the next.

    Returns:
        all token ids, those of the prompt and those generated, from the beginning to the end of the last call.

    Raises:
        ValueError: a call does not continue the one before it, or its hashes are not those of its tokens.
    """
    token_ids: list[int] = []
    parent: StagedCallRecord | StagedBaseSnapshot | None = None
    for record in records:
        if parent is not None and parent.rollout_id != record.rollout_id:
            raise ValueError(f"call {record.model_call_id!r} is of another rollout than its parent")
        wanted_parent = None if parent is None else parent.model_call_id
        if record.parent_call_id != wanted_parent or record.prev_len != len(token_ids):
            raise ValueError(
                f"call {record.model_call_id!r} continues {record.parent_call_id!r} after {record.prev_len} tokens, "
                f"before it is {wanted_parent!r} with {len(token_ids)}"
            )
        if record.chain_hash != compute_chain_hash(
            None if parent is None else parent.chain_hash, record.token_ids_delta
        ):
            raise ValueError(f"call {record.model_call_id!r}: the chain hash is not that of its parent and its tokens")
        token_ids += record.token_ids_delta
        if record.cumulative_hash != hash_token_ids(token_ids):
            raise ValueError(f"call {record.model_call_id!r}: the cumulative hash is not that of all tokens so far")
        parent = record
    return token_ids
