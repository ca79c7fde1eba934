"""Tokens, records and chains for the tests of the staging."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_gym.staging import CaptureAdmission, CommitCoords, RolloutTokenCapture, StagedCallRecord, StageResult

PROMPT = [1, 2, 3, 4]
GENERATED = [9, 8]
LOG_PROBS = [-0.5, -0.25]


class KeepingSink:
    """Keeps what it is handed, in memory."""

    def __init__(self) -> None:
        self.records: list[StagedCallRecord] = []
        self.attachments: list[Any] = []

    def stage(self, record: StagedCallRecord, *, attachments: Mapping[str, Any] | None = None) -> StageResult:
        self.records.append(record)
        self.attachments.append(attachments)
        return StageResult(ok=True, staging_key=f"{record.rollout_id}/{record.model_call_id}")


def root(rollout_id: str = "r", model_call_id: str = "c0") -> CaptureAdmission:
    return CaptureAdmission(rollout_id=rollout_id, model_call_id=model_call_id, mode="text")


def child(parent: CommitCoords, model_call_id: str, prefix: list[int]) -> CaptureAdmission:
    return CaptureAdmission(
        rollout_id=parent.rollout_id,
        model_call_id=model_call_id,
        parent_call_id=parent.model_call_id,
        mode="token_in",
        prev_len=parent.cum_len,
        required_prefix_token_ids=prefix,
        parent_chain_hash=parent.chain_hash,
    )


def staged_chain(calls: int = 3, sink: Any = None, rollout_id: str = "r") -> list[CommitCoords]:
    """A chain of calls c0, c1, …: each generates two tokens, and the next prompt has two more."""
    capture = RolloutTokenCapture(sink if sink is not None else KeepingSink(), lambda: 7)
    coordinates: list[CommitCoords] = []
    tokens: list[int] = []
    for number in range(calls):
        name = f"c{number}"
        admission = child(coordinates[-1], name, tokens) if coordinates else root(rollout_id, name)
        prompt = [*tokens, 100 + number, 200 + number]
        generated = [300 + number, 400 + number]
        coordinates.append(capture.complete_call(capture.begin_call(admission), prompt, generated, [-0.5, -1.0]))
        tokens = prompt + generated
    return coordinates


def chain_records(calls: int = 3) -> list[StagedCallRecord]:
    sink = KeepingSink()
    staged_chain(calls, sink)
    return sink.records
