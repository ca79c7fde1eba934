"""The worker's side: from one generation to a staged record and its coordinates.

The model's answer is never failed by its capture: whatever goes wrong with the tokens or the sink gives coordinates
that say `capture_failed`, and a line in the log. Only the caller's own mistakes raise. Source: the staging contract.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from otel_gym.errors import CaptureError, StreamingUnsupportedError
from otel_gym.staging.adapters import CaptureAdapter
from otel_gym.staging.delta import build_staging_delta
from otel_gym.staging.digests import (
    DIGEST_VERSION,
    EXTRAS_DIGEST_VERSION,
    SCHEMA_VERSION,
    check_uint64,
    compute_chain_hash,
    compute_extras_digest,
    compute_staging_digest,
    hash_token_ids,
)
from otel_gym.staging.records import CaptureAdmission, CommitCoords, StagedCallRecord, StageResult
from otel_gym.staging.sinks import StagingSink

logger = logging.getLogger(__name__)


class ActiveCall:
    """One call between its beginning and its one completion; made by `RolloutTokenCapture.begin_call`.

    Attributes:
        admission: what the model server asked for.
        prefix_token_ids: what the prompt must begin with, empty for a root.
        weight_version: of the policy that generates.
    """

    def __init__(self, admission: CaptureAdmission, prefix_token_ids: list[int], weight_version: int) -> None:
        self.admission = admission
        self.prefix_token_ids = prefix_token_ids
        self.weight_version = weight_version
        self._completion = threading.Lock()

    @property
    def rollout_id(self) -> str:
        """The admission's."""
        return self.admission.rollout_id

    @property
    def model_call_id(self) -> str:
        """The admission's."""
        return self.admission.model_call_id

    def _complete(self) -> None:
        # Never released: it is taken once, whichever thread comes first.
        if not self._completion.acquire(blocking=False):
            raise CaptureError(f"call {self.model_call_id!r} of rollout {self.rollout_id!r} is complete already")


class RolloutTokenCapture:
    """Stages the exact tokens of calls from inside an inference worker. Safe to use from many threads.

    Args:
        sink: makes records durable.
        weight_version_fn: version of the weights that generate now, an int from 0.
        adapter: for `complete_call_from_response`, knows where the engine's answers hold tokens.
    """

    def __init__(
        self, sink: StagingSink, weight_version_fn: Callable[[], int], adapter: CaptureAdapter | None = None
    ) -> None:
        self._sink = sink
        self._weight_version_fn = weight_version_fn
        self._adapter = adapter

    def begin_call(
        self,
        admission: CaptureAdmission,
        prefix_token_ids: list[int] | None = None,
        stream: bool = False,
        weight_version: int | None = None,
    ) -> ActiveCall:
        """Begin to capture one call, before the engine generates.

        Args:
            admission: from the request's `ng_capture`.
            prefix_token_ids: what the staging chain holds, where the admission has no inline prefix.
            stream: whether the request asks for a stream, which has no exact tokens.
            weight_version: where the caller knows it better than the worker's function.

        Raises:
            StreamingUnsupportedError: `stream` is true.
            CaptureError: the prefix contradicts the admission, or the weight version is no int from 0.
        """
        if stream:
            raise StreamingUnsupportedError(
                f"call {admission.model_call_id!r} asks for a stream: a worker that stages tokens answers as a whole"
            )
        prefix = _prefix(admission, prefix_token_ids)
        version = self._weight_version_fn() if weight_version is None else weight_version
        try:
            check_uint64("weight_version", version)
        except ValueError as error:
            raise CaptureError(str(error)) from None
        return ActiveCall(admission, prefix, version)

    def complete_call(
        self,
        call: ActiveCall,
        prompt_token_ids: list[int],
        generated_token_ids: list[int],
        generated_logprobs: list[float],
        extras: dict[str, Any] | None = None,
        *,
        attachments: Mapping[str, Any] | None = None,
    ) -> CommitCoords:
        """Stage what was generated.

        Args:
            call: from `begin_call`.
            prompt_token_ids: all of the prompt, the prefix included.
            generated_token_ids, generated_logprobs: as many as each other.
            extras: JSON's types only; under a digest of their own.
            attachments: opaque media; the same object reaches the sink, in the same write, and no digest.

        Returns:
            `staged` only after the sink said so; else `capture_failed`.

        Raises:
            CaptureError: the call was completed before.
        """
        call._complete()
        return self._staged(
            call, lambda: _record(call, prompt_token_ids, generated_token_ids, generated_logprobs, extras), attachments
        )

    def complete_call_from_response(
        self, call: ActiveCall, response_payload: Mapping[str, Any], *, attachments: Mapping[str, Any] | None = None
    ) -> CommitCoords:
        """Stage what an engine's answer holds; else as `complete_call`.

        Raises:
            CaptureError: there is no adapter, or the call was completed before.
        """
        adapter = self._adapter
        if adapter is None:
            raise CaptureError("an answer can only be read by an adapter: give one to RolloutTokenCapture")
        call._complete()
        return self._staged(call, lambda: _record(call, *adapter.extract(response_payload)), attachments)

    def fail_call(self, call: ActiveCall, reason: str) -> CommitCoords:
        """Complete a call without tokens: the engine failed, or what it gave cannot be used.

        Raises:
            CaptureError: the call was completed before.
        """
        call._complete()
        return _failed(call, reason)

    def _staged(
        self, call: ActiveCall, make_record: Callable[[], StagedCallRecord], attachments: Mapping[str, Any] | None
    ) -> CommitCoords:
        try:
            record = make_record()
        except Exception as error:  # noqa: BLE001  whatever it is, the answer goes out
            return _failed(call, f"the tokens cannot be staged: {_said(error)}")
        try:
            # The keyword only with a mapping: older sinks do not know it, and must not lose media without a word.
            keywords = {} if attachments is None else {"attachments": attachments}
            result: object = self._sink.stage(record, **keywords)
        except Exception as error:  # noqa: BLE001  a sink is someone else's code
            return _failed(call, f"the sink raised {_said(error)}")
        if not isinstance(result, StageResult):
            return _failed(call, f"the sink answered with {type(result).__name__}, not with a StageResult")
        if not result.ok or result.staging_key is None:
            return _failed(call, f"the sink refused: {result.error}")
        return CommitCoords(
            rollout_id=record.rollout_id,
            model_call_id=record.model_call_id,
            parent_call_id=record.parent_call_id,
            prev_len=record.prev_len,
            delta_len=record.delta_len,
            cum_len=record.cum_len,
            weight_version=record.weight_version,
            digest=record.digest,
            extras_digest=record.extras_digest,
            staging_key=result.staging_key,
            chain_hash=record.chain_hash,
            cumulative_hash=record.cumulative_hash,
        )


def _prefix(admission: CaptureAdmission, given: list[int] | None) -> list[int]:
    """The tokens that the prompt must begin with, from the admission or the caller; both must agree."""
    inline = admission.required_prefix_token_ids
    if given is None:
        if len(inline) != admission.prev_len:
            raise CaptureError("the admission has a staging chain: give the prefix that the chain holds")
        return inline
    if type(given) is not list or any(type(token) is not int for token in given):
        raise CaptureError("prefix_token_ids is a list of ints")
    if len(given) != admission.prev_len:
        raise CaptureError(f"the admission has a prefix of {admission.prev_len} tokens, got {len(given)}")
    if inline and given != inline:
        raise CaptureError("prefix_token_ids differ from the admission's inline prefix")
    return given


def _record(
    call: ActiveCall, prompt: list[int], generated: list[int], log_probs: list[float], extras: dict[str, Any] | None
) -> StagedCallRecord:
    admission = call.admission
    prev_len = admission.prev_len
    if prompt[:prev_len] != call.prefix_token_ids:
        raise ValueError("the prompt does not begin with the tokens of the calls before it")
    ids, mask, log_probs = build_staging_delta(prompt, generated, log_probs, prev_len)
    values: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "digest_version": DIGEST_VERSION,
        "extras_digest_version": EXTRAS_DIGEST_VERSION,
        "rollout_id": admission.rollout_id,
        "model_call_id": admission.model_call_id,
        "parent_call_id": admission.parent_call_id,
        "mode": admission.mode,
        "prev_len": prev_len,
        "delta_len": len(ids),
        "cum_len": prev_len + len(ids),
        "weight_version": call.weight_version,
        "token_ids_delta": ids,
        "token_mask_delta": mask,
        "generation_log_probs_delta": log_probs,
        "extras_digest": compute_extras_digest(extras),
        "chain_hash": compute_chain_hash(admission.parent_chain_hash, ids),
        "cumulative_hash": hash_token_ids(prompt[:prev_len] + ids if prev_len else ids),
    }
    # The digest has checked all that validation would; a second time would cost a long call as much again.
    return StagedCallRecord.model_construct(digest=compute_staging_digest(**values), extras=extras, **values)


def _failed(call: ActiveCall, reason: str) -> CommitCoords:
    admission = call.admission
    logger.warning(
        "otel-gym: the tokens of call %r of rollout %r are not staged: %s",
        admission.model_call_id,
        admission.rollout_id,
        reason,
    )
    return CommitCoords(
        rollout_id=admission.rollout_id,
        model_call_id=admission.model_call_id,
        parent_call_id=admission.parent_call_id,
        prev_len=admission.prev_len,
        delta_len=0,
        cum_len=admission.prev_len,
        weight_version=call.weight_version,
        disposition="capture_failed",
    )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
