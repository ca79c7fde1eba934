"""What the corpus does not say of the capture: threads, identity of attachments, exceptions of a sink that are none."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from otel_gym.errors import OtelGymError
from otel_gym.staging import (
    CaptureError,
    RolloutTokenCapture,
    StagedCallRecord,
    StageResult,
    StreamingUnsupportedError,
    VLLMCaptureAdapter,
    verify_chain,
)
from tests.staging.material import GENERATED, LOG_PROBS, PROMPT, KeepingSink, root, staged_chain


def test_the_sink_gets_the_very_same_attachments() -> None:
    sink = KeepingSink()
    capture = RolloutTokenCapture(sink, lambda: 1)
    pixels = {"pixels": object()}
    capture.complete_call(capture.begin_call(root()), PROMPT, GENERATED, LOG_PROBS, attachments=pixels)
    assert pixels is sink.attachments[0]


def test_attachments_change_no_digest() -> None:
    sink = KeepingSink()
    capture = RolloutTokenCapture(sink, lambda: 1)
    bare, dressed = (
        capture.complete_call(capture.begin_call(root()), PROMPT, GENERATED, LOG_PROBS, attachments=attachments)
        for attachments in (None, {"pixels": b"1"})
    )
    assert bare == dressed
    assert sink.records[0] == sink.records[1]


def test_an_empty_mapping_is_a_mapping() -> None:
    sink = KeepingSink()
    capture = RolloutTokenCapture(sink, lambda: 1)
    capture.complete_call(capture.begin_call(root()), PROMPT, GENERATED, LOG_PROBS, attachments={})
    assert [{}] == sink.attachments


def test_of_many_completions_at_once_one_wins() -> None:
    sink = KeepingSink()
    capture = RolloutTokenCapture(sink, lambda: 1)
    call = capture.begin_call(root())
    gate = threading.Barrier(8)

    def complete() -> str:
        gate.wait(30)
        try:
            return capture.complete_call(call, PROMPT, GENERATED, LOG_PROBS).disposition
        except CaptureError:
            return "refused"

    with ThreadPoolExecutor(8) as pool:
        outcomes = [future.result() for future in [pool.submit(complete) for _ in range(8)]]
    assert ["refused"] * 7 + ["staged"] == sorted(outcomes)
    assert 1 == len(sink.records)


def test_many_rollouts_at_once_each_give_a_whole_chain() -> None:
    sink = KeepingSink()
    with ThreadPoolExecutor(8) as pool:
        chains = list(pool.map(lambda number: staged_chain(5, sink, f"r{number}"), range(40)))
    assert all(coords.disposition == "staged" for chain in chains for coords in chain)
    for number in range(40):
        assert 20 == len(verify_chain(record for record in sink.records if record.rollout_id == f"r{number}"))


class InterruptedSink:
    def stage(self, record: StagedCallRecord, *, attachments: Mapping[str, Any] | None = None) -> StageResult:
        raise KeyboardInterrupt


def test_an_interrupt_is_no_failure_of_the_sink() -> None:
    capture = RolloutTokenCapture(InterruptedSink(), lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        capture.complete_call(capture.begin_call(root()), PROMPT, GENERATED, LOG_PROBS)


def test_a_failed_call_says_why_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    capture = RolloutTokenCapture(KeepingSink(), lambda: 1)
    coords = capture.fail_call(capture.begin_call(root("7-0", "c9")), "the engine died")
    assert ("capture_failed", 0, None) == (coords.disposition, coords.delta_len, coords.staging_key)
    assert ["otel-gym: the tokens of call 'c9' of rollout '7-0' are not staged: the engine died"] == caplog.messages


def test_misuse_is_one_of_our_errors() -> None:
    assert issubclass(StreamingUnsupportedError, CaptureError)
    assert issubclass(CaptureError, OtelGymError)


def test_the_prefix_goes_into_a_copy_of_the_request() -> None:
    request: dict[str, Any] = {"messages": []}
    assert {"messages": [], "required_prefix_token_ids": [1, 2]} == VLLMCaptureAdapter().inject_prefix(request, [1, 2])
    assert {"messages": []} == request
