"""Model calls as an analyst wants them: one flat record a call, derived from a stored exchange.

    store = CaptureStore("/captures")
    calls = read_model_call_records(store, "3-1")
    totals = aggregate_model_call_metrics(store, "3-1")

The same names and the same results as in the reference. Source: "ModelCallRecord" of the rollout specification;
every expected `model_call_records` and `aggregate` of the conformance corpus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from otel_gym_jsonl.answers import finish_reason, reasoning_content, tool_calls
from otel_gym_jsonl.errors import DamagedRecordError
from otel_gym_jsonl.metrics import ModelCallMetrics
from otel_gym_jsonl.reader import Line, iter_records
from otel_gym_jsonl.usage import token_counts


class CaptureFiles(Protocol):
    """What the functions here need of a store: where the file of a rollout is."""

    def path_for(self, rollout_id: str) -> Path:
        """The capture file of a rollout."""


class ModelRef(BaseModel):
    """The model server that a call went to."""

    type: Literal["responses_api_models"]
    name: str


class ModelCallRecord(BaseModel):
    """One call. None means unknown: the provider, or the exchange, did not say.

    Attributes (units; those not listed are as stored, see the capture format):
        response_id: the `id` of the answer.
        call_index: place in the capture file, damaged lines counted, from 0: durable append order.
        model: the answer's `model`, else the request's.
        response_status: the answer's `status` (Responses API).
        started_at, completed_at: Unix seconds.
        tool_calls: `{"call_id", "name", "arguments"}` each; arguments that are no JSON are `{"_raw": text}`.
        latency_total_ms, latency_ttft_ms: milliseconds, whole call and to the first token.
    """

    model_config = ConfigDict(protected_namespaces=())

    model_call_id: str | None = None
    response_id: str | None = None
    client_session_id: str | None = None
    call_index: int
    model_ref: ModelRef | None = None
    model: str | None = None
    dialect: str | None = None
    status_code: int | None = None
    response_status: str | None = None
    finish_reason: str | None = None
    upstream_attempted: bool | None = None
    response_source: Literal["upstream", "local"] | None = None
    upstream_status_code: int | None = None
    local_response_reason: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_reasoning: int | None = None
    tokens_total: int | None = None
    request: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    request_raw: str | None = None
    response_raw: str | None = None
    tool_calls: list[dict[str, Any]] = []
    reasoning_content: str | None = None
    cache_hit: bool | None = None
    cached_tokens: int | None = None
    cache_creation_tokens: int | None = None
    error_category: str | None = None
    latency_total_ms: float | None = None
    latency_ttft_ms: float | None = None

    @classmethod
    def from_record(cls, record: Mapping[str, Any], call_index: int) -> ModelCallRecord:
        """Derive the call from a stored record.

        Raises:
            pydantic.ValidationError: a field of the record has a type that cannot be taken for the right one.
            TypeError, AttributeError: the record or its answer has a shape that no API has.
        """
        request = _object(record.get("request"))
        response = _object(record.get("response"))
        answer = response or {}
        tokens = token_counts(answer.get("usage"))
        return cls(
            model_call_id=record.get("model_call_id"),
            response_id=_text(answer.get("id")),
            client_session_id=_text(record.get("client_session_id")),
            call_index=call_index,
            model_ref=record.get("model_ref"),
            model=_text(answer.get("model") or (request or {}).get("model")),
            dialect=record.get("dialect"),
            status_code=record.get("status_code"),
            response_status=_text(answer.get("status")),
            finish_reason=finish_reason(answer),
            **_execution(record),
            started_at=record.get("started_at"),
            completed_at=record.get("completed_at"),
            tokens_in=tokens.tokens_in,
            tokens_out=tokens.tokens_out,
            tokens_reasoning=tokens.reasoning,
            tokens_total=tokens.total,
            request=request,
            response=response,
            request_raw=_text(record.get("request_raw")),
            response_raw=_text(record.get("response_raw")),
            tool_calls=tool_calls(answer),
            reasoning_content=reasoning_content(answer),
            cache_hit=None if tokens.cached is None else tokens.cached > 0,
            cached_tokens=tokens.cached,
            cache_creation_tokens=tokens.cache_creation,
            error_category=record.get("error_category"),
            latency_total_ms=record.get("latency_ms"),
            latency_ttft_ms=record.get("latency_ttft_ms"),
        )


def iter_model_calls(path: Path, **options: Any) -> Iterator[tuple[Line, ModelCallRecord | DamagedRecordError]]:
    """Each line of a capture file with its call, or with why it gives none, in the memory that one line needs.

    The options are those of `iter_records`.

    Raises: as `iter_records`.
    """
    for line in iter_records(path, **options):
        if line.error is not None:
            yield line, _damaged(path, line, str(line.damage), line.error)
            continue
        try:
            yield line, ModelCallRecord.from_record(line.value, line.index)
        except ValidationError as exc:
            fields = (f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in exc.errors(include_url=False))
            yield line, _damaged(path, line, "; ".join(fields), exc)
        except (TypeError, AttributeError) as exc:
            yield line, _damaged(path, line, line.damage or f"its response has a shape that no API has: {exc}", exc)


def _damaged(path: Path, line: Line, reason: str, cause: Exception) -> DamagedRecordError:
    error = DamagedRecordError(path, line.number, reason)
    error.__cause__ = cause
    return error


def read_model_call_records(store: CaptureFiles, rollout_id: str) -> list[ModelCallRecord]:
    """Every call of a rollout, in append order.

    Raises:
        DamagedRecordError: a line is damaged, or no call can be derived from it; the cause says why.
        InvalidRolloutIdError: the id cannot name a file.
        OSError: the file cannot be read.
    """
    return list(_strict(store.path_for(rollout_id)))


def read_available_model_call_records(store: CaptureFiles, rollout_id: str) -> tuple[list[ModelCallRecord], int]:
    """The calls of a rollout that can be read, and the number of lines that cannot.

    Raises:
        InvalidRolloutIdError: the id cannot name a file.
        OSError: the file cannot be read.
    """
    calls = []
    invalid = 0
    for _, call in iter_model_calls(store.path_for(rollout_id)):
        if isinstance(call, ModelCallRecord):
            calls.append(call)
        else:
            invalid += 1
    return calls, invalid


def aggregate_model_call_metrics(store: CaptureFiles, rollout_id: str) -> dict[str, Any]:
    """Totals over the calls of a rollout (`ModelCallMetrics.totals`), in constant memory.

    Raises: as `read_model_call_records`.
    """
    metrics = ModelCallMetrics()
    for call in _strict(store.path_for(rollout_id)):
        metrics.add(call)
    return metrics.totals()


def _strict(path: Path) -> Iterator[ModelCallRecord]:
    for _, call in iter_model_calls(path):
        if isinstance(call, DamagedRecordError):
            raise call
        yield call


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _object(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def _execution(record: Mapping[str, Any]) -> dict[str, Any]:
    """The execution outcome; a value of another type than the capture writes is unknown (divergence 3)."""
    attempted = record.get("upstream_attempted")
    source = record.get("response_source")
    status = record.get("upstream_status_code")
    return {
        "upstream_attempted": attempted if isinstance(attempted, bool) else None,
        "response_source": source if source in ("upstream", "local") else None,
        "upstream_status_code": status if type(status) is int else None,
        "local_response_reason": _text(record.get("local_response_reason")),
    }
