"""The staged calls of the rollouts that are under way: which call a new one continues, and what it is admitted as."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from otel_gym.staging.fingerprints import (
    FINGERPRINT_VERSION,
    continuation_fingerprint,
    continued_fingerprints,
    output_fingerprint,
)
from otel_gym.staging.records import CallRecord, CaptureAdmission, CommitCoords

REMEMBERED: Final = 4096
"""Rollouts whose calls are kept; of the others the longest unused are forgotten, and their next call is a root."""

_SHARED = tuple(name for name in CallRecord.model_fields if name in CommitCoords.model_fields)


class CallLedger:
    """Admits calls and keeps what became of them. Safe to use from many threads.

    A call whose conversation begins with one that an earlier call has left is its child; the longest such conversation
    counts, of several equal ones the latest. Any other call is a root.
    """

    def __init__(self) -> None:
        self._rollouts: OrderedDict[str, list[CallRecord]] = OrderedDict()
        self._lock = threading.Lock()

    def admit(self, rollout_id: str, model_call_id: str, messages: Sequence[Mapping[str, Any]]) -> CaptureAdmission:
        """What to ask a worker for.

        Args:
            messages: of the chat request that the worker gets.

        Raises:
            ValidationError: an id is empty.
        """
        parent = None
        with self._lock:
            records = self._rollouts.get(rollout_id, ())
            by_fingerprint = {record.continuation_fingerprint: record for record in records}
            by_call_id = {record.model_call_id: record for record in records}
            if rollout_id in self._rollouts:
                self._rollouts.move_to_end(rollout_id)
        if by_fingerprint:
            fingerprints = continued_fingerprints(messages)
            parent = next((by_fingerprint[found] for found in fingerprints if found in by_fingerprint), None)
        if parent is None:
            return CaptureAdmission(rollout_id=rollout_id, model_call_id=model_call_id, mode="text")
        chain = [parent.staging_key]
        before = parent.parent_call_id
        while before is not None:
            chain.append(by_call_id[before].staging_key)
            before = by_call_id[before].parent_call_id
        return CaptureAdmission(
            rollout_id=rollout_id,
            model_call_id=model_call_id,
            parent_call_id=parent.model_call_id,
            mode="token_in",
            prev_len=parent.cum_len,
            staging_chain=chain[::-1],
            parent_chain_hash=parent.chain_hash,
        )

    def commit(
        self,
        admission: CaptureAdmission,
        coords: CommitCoords,
        *,
        response_id: str,
        messages: Sequence[Mapping[str, Any]],
        answer: Mapping[str, Any],
    ) -> CallRecord:
        """Keep a call that is staged, for those that continue it.

        Args:
            admission, coords: of the call; the coordinates say `staged`.
            response_id: of the answer as the client gets it.
            messages: as for `admit`.
            answer: the message of the worker's answer.

        Raises:
            ValidationError: the coordinates say `capture_failed`.
        """
        record = CallRecord(
            **{name: getattr(coords, name) for name in _SHARED},
            mode=admission.mode,
            response_id=response_id,
            admitted_at=time.time(),
            output_fingerprint=output_fingerprint(answer),
            continuation_fingerprint=continuation_fingerprint(messages, answer),
            fingerprint_version=FINGERPRINT_VERSION,
        )
        with self._lock:
            self._rollouts.setdefault(admission.rollout_id, []).append(record)
            self._rollouts.move_to_end(admission.rollout_id)
            if len(self._rollouts) > REMEMBERED:
                self._rollouts.popitem(last=False)
        return record

    def calls(self, rollout_id: str) -> list[CallRecord]:
        """The staged calls of a rollout, in the order in which they were staged."""
        with self._lock:
            return list(self._rollouts.get(rollout_id, ()))

    def forget(self, rollout_id: str) -> None:
        """Drop a rollout that has ended."""
        with self._lock:
            self._rollouts.pop(rollout_id, None)
