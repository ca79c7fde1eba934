"""The capture format: records of model calls, one append-only JSONL file a rollout.

Store, reader and span exporter of NeMo Gym's `CaptureStore` files; useful alone in anyone's OpenTelemetry pipeline.
The names are imported when they are first used, so that reading a file does not load the OpenTelemetry SDK.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_gym_jsonl.exporter import JsonlSpanExporter
    from otel_gym_jsonl.model_calls import (
        ModelCallRecord,
        aggregate_model_call_metrics,
        read_available_model_call_records,
        read_model_call_records,
    )
    from otel_gym_jsonl.reader import iter_records
    from otel_gym_jsonl.store import CaptureStore

_HOMES = {
    "CaptureStore": "store",
    "JsonlSpanExporter": "exporter",
    "ModelCallRecord": "model_calls",
    "aggregate_model_call_metrics": "model_calls",
    "iter_records": "reader",
    "read_available_model_call_records": "model_calls",
    "read_model_call_records": "model_calls",
}

__all__ = [
    "CaptureStore",
    "JsonlSpanExporter",
    "ModelCallRecord",
    "aggregate_model_call_metrics",
    "iter_records",
    "read_available_model_call_records",
    "read_model_call_records",
]


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
