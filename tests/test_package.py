"""The packages as a user imports them: few names, and nothing that a model server does not need."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

FRAMEWORKS_AND_CLIENTS = (
    "starlette",
    "fastapi",
    "uvicorn",
    "httpx",
    "httpx2",
    "requests",
    "aiohttp",
    "openai",
    "anthropic",
    "yaml",
)
HEAVY = ("pydantic", "opentelemetry.sdk", "portalocker", "zstandard")


EXPORTED = {
    "otel_gym": [
        "CaptureMiddleware",
        "Settings",
        "__version__",
        "current_rollout_id",
        "instrument",
        "rollout",
        "uninstrument",
    ],
    "otel_gym.rollouts": [
        "AgentInvocation",
        "AgentObservations",
        "ContextCompaction",
        "Gap",
        "ModelCallRef",
        "RolloutPerf",
        "RolloutRoutes",
        "RolloutTransport",
        "SandboxObservation",
        "ToolCallObservation",
        "TrajectoryRecord",
        "agent",
        "apply_rollout_prefix",
        "attach",
        "attach_perf",
        "attach_trajectory",
        "base_url_for_run",
        "call_table",
        "carry",
        "clear_rollouts",
        "join",
        "maybe_rollout_id_from_run_body",
        "merge_capture",
        "resolve_model_base_url",
        "rollout",
        "rollout_id_from_run",
        "rollout_path_prefix",
        "rollout_table",
        "url_path_for_request",
        "url_path_for_run",
        "without_evidence",
    ],
    "otel_gym_jsonl": [
        "CaptureStore",
        "JsonlSpanExporter",
        "ModelCallRecord",
        "aggregate_model_call_metrics",
        "iter_records",
        "read_available_model_call_records",
        "read_model_call_records",
    ],
}


@pytest.mark.parametrize("package", EXPORTED)
def test_each_exported_name_is_there_and_in_order(package: str) -> None:
    module = importlib.import_module(package)
    names = [name for name in module.__all__ if name != "__version__"]
    assert EXPORTED[package] == module.__all__
    assert names == [name for name in names if getattr(module, name).__module__.startswith(f"{package}.")]
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # noqa: B018  (the access is what is tested)


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import otel_gym", (*FRAMEWORKS_AND_CLIENTS, *HEAVY)),
        ("import otel_gym.rollouts", (*FRAMEWORKS_AND_CLIENTS, *HEAVY)),
        ("from otel_gym.rollouts import *", FRAMEWORKS_AND_CLIENTS),
        ("import otel_gym_jsonl", (*FRAMEWORKS_AND_CLIENTS, *HEAVY)),
        ("from otel_gym import CaptureMiddleware, Settings, instrument", FRAMEWORKS_AND_CLIENTS),
        ("from otel_gym_jsonl import CaptureStore, JsonlSpanExporter, ModelCallRecord", FRAMEWORKS_AND_CLIENTS),
        ("from otel_gym.cli import make_parser; make_parser()", (*FRAMEWORKS_AND_CLIENTS, "opentelemetry")),
    ],
)
def test_importing_loads_no_framework_and_no_client(code: str, unwanted: tuple[str, ...]) -> None:
    """In a process of its own, where all of them are installed."""
    script = f"import sys\n{code}\nprint([name for name in {unwanted!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert "[]" == done.stdout.strip()
