"""What the digests of a long call cost: time, and memory beside the lists that they are taken of."""

from __future__ import annotations

import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.bench import Bench, Check, Outcome
from otel_gym.staging import (
    CaptureAdmission,
    RolloutTokenCapture,
    StagedCallRecord,
    StageResult,
    compute_staging_digest,
    staging_key,
)

TOKENS = 100_000
LIMIT_MS = 10.0
LIMIT_LISTS = 4.0
_POINTER_BYTES = 8
_HASH = "0" * 64


class _NoSink:
    def stage(self, record: StagedCallRecord, *, attachments: Mapping[str, Any] | None = None) -> StageResult:
        return StageResult(ok=True, staging_key=staging_key(record.rollout_id, record.model_call_id))


def run(bench: Bench) -> Outcome:
    """Half of the tokens are the prompt's, half are generated."""
    count = bench.times(TOKENS, least=2)
    half = count // 2
    ids = [random.randrange(150_000) for _ in range(count)]
    mask = [0.0] * (count - half) + [1.0] * half
    log_probs = [0.0] * (count - half) + [-random.random() for _ in range(half)]
    digest = partial(
        compute_staging_digest,
        schema_version=2,
        digest_version=2,
        extras_digest_version=1,
        rollout_id="0-0",
        model_call_id="c",
        parent_call_id=None,
        mode="text",
        prev_len=0,
        delta_len=count,
        cum_len=count,
        weight_version=0,
        token_ids_delta=ids,
        token_mask_delta=mask,
        generation_log_probs_delta=log_probs,
        extras_digest=_HASH,
        chain_hash=_HASH,
        cumulative_hash=_HASH,
    )
    capture = RolloutTokenCapture(_NoSink(), lambda: 0)
    admission = CaptureAdmission(rollout_id="0-0", model_call_id="c", mode="text")

    def stage() -> object:
        call = capture.begin_call(admission)
        return capture.complete_call(call, ids[:-half], ids[-half:], log_probs[-half:])

    lists = _POINTER_BYTES * 3 * count
    return Outcome(
        checks=(
            Check("staging", f"digest of a call, {count:,} tokens", _median_ms(digest), LIMIT_MS, "ms"),
            Check("staging", "memory of a digest, in its lists", _peak(digest) / lists, LIMIT_LISTS, "x"),
            Check("staging", "memory of a staged call, in its lists", _peak(stage) / lists, LIMIT_LISTS, "x"),
        ),
        notes=(f"staging: delta, all digests and record of {count:,} tokens {_median_ms(stage):.1f} ms",),
    )


def _median_ms(run: Callable[[], object], times: int = 9) -> float:
    def once() -> float:
        began = time.perf_counter()
        run()
        return 1e3 * (time.perf_counter() - began)

    return statistics.median(once() for _ in range(times))


def _peak(run: Callable[[], object]) -> int:
    """The most that it holds at once, in bytes."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
