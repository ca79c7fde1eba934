"""otel-gym as the conformance cases see it (the adapter that README.md describes)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from otel_gym import CaptureMiddleware, Settings, current_rollout_id, rollouts
from otel_gym.rollouts.attachment import ATTACHED_KEYS, ROW_KEYS, attach_perf, attach_trajectory, merge_capture
from otel_gym.rollouts.ids import (
    apply_rollout_prefix,
    clear_rollouts,
    maybe_rollout_id_from_run_body,
    rollout_path_prefix,
)
from otel_gym.staging import (
    CallRecord,
    CaptureAdmission,
    CommitCoords,
    MegatronCaptureAdapter,
    RolloutTokenCapture,
    StageResult,
    VLLMCaptureAdapter,
    build_staging_delta,
    classify_route_span,
    compute_chain_hash,
    compute_extras_digest,
    compute_staging_digest,
    decode_routed_experts,
    encode_routed_experts,
    encode_token_ids,
    hash_token_ids,
    routed_experts_token_count,
    staging_key,
)
from otel_gym.token_sink import TokenSink
from otel_gym_jsonl import (
    CaptureStore,
    aggregate_model_call_metrics,
    json_text,
    read_available_model_call_records,
)
from otel_gym_jsonl.errors import DamagedRecordError, InvalidRolloutIdError
from tests.conformance.staging_flow import call_flow

__all__ = ["current_rollout_id"]

HAS_TOKEN_SINK = True


def make_app(
    inner: Any, capture_dir: Path, *, model_server_name: str | None = None, token_sink: TokenSink | None = None
) -> CaptureMiddleware:
    settings = Settings(
        observability_enabled=True,
        model_call_capture_dir=capture_dir,
        model_server_name=model_server_name or None,  # the reference takes an empty name for none
    )
    return CaptureMiddleware(inner, settings=settings, token_sink=token_sink)


async def finish(app: CaptureMiddleware) -> None:
    await app.aclose()


def canonical_line(record: dict[str, Any]) -> bytes:
    """The bytes of a record's line, without the newline: the driver compares lines that it has split."""
    return json_text.dumps(record)


def read(capture_dir: Path, rollout_id: str) -> list[Any]:
    with reference_errors():
        return CaptureStore(capture_dir).read(rollout_id)


def read_available(capture_dir: Path, rollout_id: str) -> tuple[list[tuple[int, dict[str, Any]]], int]:
    with reference_errors():
        return CaptureStore(capture_dir).read_available(rollout_id)


def model_call_records(capture_dir: Path, rollout_id: str) -> tuple[list[dict[str, Any]], int]:
    with reference_errors():
        records, damaged = read_available_model_call_records(CaptureStore(capture_dir), rollout_id)
    return [record.model_dump() for record in records], damaged


def aggregate(capture_dir: Path, rollout_id: str) -> dict[str, Any]:
    with reference_errors():
        return aggregate_model_call_metrics(CaptureStore(capture_dir), rollout_id)


@contextmanager
def reference_errors() -> Iterator[None]:
    """Raise what the reference raises in place of our own errors: the cause of a damaged record, a plain ValueError."""
    try:
        yield
    except DamagedRecordError as exc:
        raise (exc.__cause__ or exc) from None
    except InvalidRolloutIdError as exc:
        raise ValueError(str(exc)) from None


def clear(rows: Iterable[Any], capture_dirs: Iterable[Path]) -> None:
    clear_rollouts(rows, capture_dirs)


def attach(
    row: dict[str, Any],
    result: dict[str, Any],
    capture_dirs: list[Path],
    *,
    include_payloads: bool,
    observability_enabled: bool,
    rollout_latency_ms: Any,
) -> dict[str, Any]:
    """The three steps, as the collector of the reference takes them, with what lies between the first two.

    In one go, where what one step has checked is not checked by the next, they must give the same.
    """
    options: dict[str, Any] = {"observability_enabled": observability_enabled, "rollout_latency_ms": rollout_latency_ms}
    at_once: dict[str, Any] | None = None
    with suppress(ValueError):
        at_once = rollouts.attach(row, result, capture_dirs, include_payloads=include_payloads, **options)
    attached = {**result, **{key: row[key] for key in ROW_KEYS if key in row}}
    out: dict[str, Any] = {}
    try:
        with reference_errors():
            merge_capture(row, attached, capture_dirs, include_payloads=include_payloads)
    except ValueError as exc:
        out["merge_error"] = type(exc).__name__
    out["merged_capture"] = copy.deepcopy(attached.get("ng_model_call_capture"))
    if "merge_error" not in out and attach_trajectory(row, attached) and observability_enabled:
        attach_perf(attached, rollout_latency_ms)
    assert at_once == (None if "merge_error" in out else attached)
    out.update({key: attached.pop(key, None) for key in ATTACHED_KEYS})
    return {**out, "rest_of_result": attached}


def correlation(fn: str, args: dict[str, Any]) -> Any:
    functions: dict[str, Callable[..., Any]] = {
        "maybe_rollout_id_from_run_body": maybe_rollout_id_from_run_body,
        "apply_rollout_prefix": apply_rollout_prefix,
        "rollout_path_prefix": rollout_path_prefix,
        "path_for": file_names,
    }
    with reference_errors():
        return functions[fn](**args)


def file_names(rollout_id: str) -> list[str]:
    store = CaptureStore(Path("/"))
    return [store.path_for(rollout_id).name, store.marker_for(rollout_id).name]


def staging(op: str, args: dict[str, Any]) -> Any:
    functions: dict[str, Callable[..., Any]] = {
        "build_staging_delta": build_staging_delta,
        "classify_route_span": classify_route_span,
        "compute_chain_hash": compute_chain_hash,
        "compute_extras_digest": compute_extras_digest,
        "compute_staging_digest": compute_staging_digest,
        "decode_routed_experts": lambda payload: decode_routed_experts(payload)._asdict(),
        "encode_routed_experts": encode_routed_experts,
        "encode_token_ids": lambda token_ids: encode_token_ids(token_ids).hex(),
        "hash_token_ids": hash_token_ids,
        "routed_experts_token_count": routed_experts_token_count,
        "staging_key": staging_key,
        "call_flow": flow,
        **{
            model.__name__: partial(wire_model, model)
            for model in (CallRecord, CaptureAdmission, CommitCoords, StageResult)
        },
    }
    return functions[op](**args)


def wire_model(model: type[BaseModel], **fields: Any) -> dict[str, Any]:
    return model.model_validate(fields).model_dump(mode="json")


def flow(**args: Any) -> dict[str, Any]:
    steps: dict[str, Any] = call_flow(
        args,
        RolloutTokenCapture=RolloutTokenCapture,
        CaptureAdmission=CaptureAdmission,
        StageResult=StageResult,
        staging_key=staging_key,
        adapters={"vllm": VLLMCaptureAdapter, "megatron": MegatronCaptureAdapter},
    )
    return steps
