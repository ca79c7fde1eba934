"""What worker and model server say to each other about one staged call, field for field as NeMo Gym 0.7 does.

Unknown fields are refused, so are NaN and lengths of another type than int. All of them are immutable.
Source: the staging contract, "Records".
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from otel_gym.staging.digests import (
    check_call,
    check_parent,
    check_sum,
    compute_extras_digest,
    compute_staging_digest,
)

Mode = Literal["text", "token_in"]
Disposition = Literal["staged", "capture_failed"]

Id = Annotated[str, Field(min_length=1)]
Length = Annotated[int, Field(strict=True, ge=0, le=2**64 - 1)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", min_length=64, max_length=64)]
TokenIds = list[Annotated[int, Field(strict=True, ge=0, le=2**64 - 1)]]
Floats = list[Annotated[float, Field(strict=True, allow_inf_nan=False)]]


def staging_key(rollout_id: str, model_call_id: str) -> str:
    """The key of a call in a sink that gives none of its own: `<rollout_id>/<model_call_id>`.

    Raises:
        ValueError: an id is empty.
    """
    if not rollout_id or not model_call_id:
        raise ValueError(f"a staging key needs both ids, got {rollout_id!r} and {model_call_id!r}")
    return f"{rollout_id}/{model_call_id}"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


class CaptureAdmission(_Record):
    """What the model server asks a worker to stage: which call, behind which tokens.

    A `text` call is the root of a chain. A `token_in` call continues its parent: the prompt must begin with the
    parent's `prev_len` tokens, given inline or as the staging keys of the chain that they stand in.
    """

    schema_version: Literal[2] = 2
    rollout_id: Id
    model_call_id: Id
    parent_call_id: Id | None = None
    prev_len: Length = 0
    mode: Mode
    required_prefix_token_ids: TokenIds = Field(default_factory=list)
    staging_chain: list[Id] = Field(default_factory=list)
    parent_chain_hash: Sha256 | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> CaptureAdmission:
        check_call(self.rollout_id, self.model_call_id, self.parent_call_id, self.mode, self.prev_len, 0, self.prev_len)
        if (self.mode == "token_in") != (self.parent_chain_hash is not None):
            raise ValueError(f"a {self.mode} call {'needs' if self.mode == 'token_in' else 'has no'} parent_chain_hash")
        if self.mode == "text" and (self.required_prefix_token_ids or self.staging_chain):
            raise ValueError("a text call is a root: no prefix, no staging chain")
        inline = len(self.required_prefix_token_ids)
        if inline != self.prev_len and (inline or not self.staging_chain):
            raise ValueError(
                f"the inline prefix has {self.prev_len} token ids, or is left out for a chain; got {inline}"
            )
        return self


class _StagedTokens(_Record):
    schema_version: Literal[2] = 2
    digest_version: Literal[2] = 2
    extras_digest_version: Literal[1] = 1
    rollout_id: Id
    model_call_id: Id
    parent_call_id: Id | None = None
    mode: Mode
    prev_len: Length
    delta_len: Length
    cum_len: Length
    weight_version: Length
    digest: Sha256
    token_ids_delta: TokenIds
    token_mask_delta: Floats
    generation_log_probs_delta: Floats
    extras_digest: Sha256
    chain_hash: Sha256
    cumulative_hash: Sha256

    @model_validator(mode="after")
    def _has_its_digest(self) -> _StagedTokens:
        wanted = compute_staging_digest(
            schema_version=self.schema_version,
            digest_version=self.digest_version,
            extras_digest_version=self.extras_digest_version,
            rollout_id=self.rollout_id,
            model_call_id=self.model_call_id,
            parent_call_id=self.parent_call_id,
            mode=self.mode,
            prev_len=self.prev_len,
            delta_len=self.delta_len,
            cum_len=self.cum_len,
            weight_version=self.weight_version,
            token_ids_delta=self.token_ids_delta,
            token_mask_delta=self.token_mask_delta,
            generation_log_probs_delta=self.generation_log_probs_delta,
            extras_digest=self.extras_digest,
            chain_hash=self.chain_hash,
            cumulative_hash=self.cumulative_hash,
        )
        if self.digest != wanted:
            raise ValueError(f"the record's digest is {self.digest}, its contents give {wanted}")
        return self


class StagedBaseSnapshot(_StagedTokens):
    """A staged call without its extras; their digest is still there, and still under the call's digest."""


class StagedCallRecord(_StagedTokens):
    """One call's new tokens as they are staged; validation computes both digests again.

    Attributes:
        token_ids_delta: ids of the prompt behind the prefix, then those generated.
        token_mask_delta: 0.0 for the prompt, 1.0 for what was generated.
        generation_log_probs_delta: 0.0 where the mask is 0.0.
        extras: what else the worker knows of the call (`routed_experts`, `media_spans`), JSON's types only.
        chain_hash: over the parent's chain hash and the new ids.
        cumulative_hash: over all ids, the prefix included.
    """

    extras: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _has_its_extras_digest(self) -> StagedCallRecord:
        wanted = compute_extras_digest(self.extras)
        if self.extras_digest != wanted:
            raise ValueError(f"the record's extras digest is {self.extras_digest}, its extras give {wanted}")
        return self

    def base_snapshot(self) -> StagedBaseSnapshot:
        """The same without extras; the lists are shared."""
        values = {name: getattr(self, name) for name in StagedBaseSnapshot.model_fields}
        return StagedBaseSnapshot.model_construct(**values)


class StageResult(_Record):
    """What a sink answers: where it put the record, or why it did not."""

    schema_version: Literal[2] = 2
    ok: bool
    staging_key: str | None = None
    error: str | None = None

    @model_validator(mode="after")
    def _says_enough(self) -> StageResult:
        if self.ok and not self.staging_key:
            raise ValueError("a record that was staged has a staging key")
        if not self.ok and not self.error:
            raise ValueError("a record that was not staged has an error that says why")
        return self


class CommitCoords(_Record):
    """Where a call's tokens are staged: all that the model server sees of them.

    `staged` has every digest and the key, `capture_failed` none of them and no new tokens.
    """

    schema_version: Literal[2] = 2
    digest_version: Literal[2] = 2
    extras_digest_version: Literal[1] = 1
    rollout_id: Id
    model_call_id: Id
    parent_call_id: Id | None = None
    prev_len: Length
    delta_len: Length
    cum_len: Length
    weight_version: Length
    disposition: Disposition = "staged"
    digest: Sha256 | None = None
    extras_digest: Sha256 | None = None
    staging_key: Id | None = None
    chain_hash: Sha256 | None = None
    cumulative_hash: Sha256 | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> CommitCoords:
        check_parent(self.parent_call_id, self.prev_len)
        check_sum(self.prev_len, self.delta_len, self.cum_len)
        given = [self.digest, self.extras_digest, self.staging_key, self.chain_hash, self.cumulative_hash]
        if self.disposition == "staged" and (None in given or self.delta_len == 0):
            raise ValueError("a staged call has new tokens, all digests and a staging key")
        if self.disposition == "capture_failed" and (any(given) or self.delta_len):
            raise ValueError("a call whose capture failed has no new tokens, no digest and no staging key")
        return self


class CallRecord(_Record):
    """A staged call in a rollout's ledger: coordinates and mode, without rollout id and disposition.

    Attributes:
        response_id: id of the answer that the client got.
        admitted_at: Unix seconds, null when unknown.
        output_fingerprint, continuation_fingerprint: of the answer, and of the conversation that continues it
            (`otel_gym.staging.fingerprints`).
        fingerprint_version: 0 without fingerprints.
    """

    schema_version: Literal[2] = 2
    digest_version: Literal[2] = 2
    extras_digest_version: Literal[1] = 1
    model_call_id: Id
    parent_call_id: Id | None = None
    prev_len: Length
    delta_len: Annotated[int, Field(strict=True, gt=0, le=2**64 - 1)]
    cum_len: Length
    weight_version: Length
    digest: Sha256
    extras_digest: Sha256
    staging_key: Id
    mode: Mode
    chain_hash: Sha256
    cumulative_hash: Sha256
    response_id: Id
    admitted_at: float | None = None
    output_fingerprint: Id | None = None
    continuation_fingerprint: Id | None = None
    fingerprint_version: Length = 0

    @model_validator(mode="after")
    def _is_consistent(self) -> CallRecord:
        check_call("-", self.model_call_id, self.parent_call_id, self.mode, self.prev_len, self.delta_len, self.cum_len)
        return self
