"""Rollouts: ids and URLs for agents, and what was captured of a rollout attached to its row.

The names are imported when they are first used. Source: the rollout specification.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_gym.rollouts.agents import RolloutRoutes, agent
    from otel_gym.rollouts.attachment import attach, attach_perf, attach_trajectory, merge_capture
    from otel_gym.rollouts.carrying import RolloutTransport, carry
    from otel_gym.rollouts.context import rollout
    from otel_gym.rollouts.ids import (
        apply_rollout_prefix,
        clear_rollouts,
        maybe_rollout_id_from_run_body,
        rollout_path_prefix,
    )
    from otel_gym.rollouts.joining import join
    from otel_gym.rollouts.observations import (
        AgentInvocation,
        AgentObservations,
        ContextCompaction,
        SandboxObservation,
        ToolCallObservation,
    )
    from otel_gym.rollouts.perf import RolloutPerf
    from otel_gym.rollouts.references import Gap, ModelCallRef
    from otel_gym.rollouts.trajectory import TrajectoryRecord
    from otel_gym.rollouts.urls import (
        base_url_for_run,
        resolve_model_base_url,
        rollout_id_from_run,
        url_path_for_request,
        url_path_for_run,
    )
    from otel_gym.rollouts.views import call_table, rollout_table, without_evidence

_HOMES = {
    "AgentInvocation": "observations",
    "AgentObservations": "observations",
    "ContextCompaction": "observations",
    "Gap": "references",
    "ModelCallRef": "references",
    "RolloutPerf": "perf",
    "RolloutRoutes": "agents",
    "RolloutTransport": "carrying",
    "SandboxObservation": "observations",
    "ToolCallObservation": "observations",
    "TrajectoryRecord": "trajectory",
    "agent": "agents",
    "apply_rollout_prefix": "ids",
    "attach": "attachment",
    "attach_perf": "attachment",
    "attach_trajectory": "attachment",
    "base_url_for_run": "urls",
    "call_table": "views",
    "carry": "carrying",
    "clear_rollouts": "ids",
    "join": "joining",
    "maybe_rollout_id_from_run_body": "ids",
    "merge_capture": "attachment",
    "resolve_model_base_url": "urls",
    "rollout": "context",
    "rollout_id_from_run": "urls",
    "rollout_path_prefix": "ids",
    "rollout_table": "views",
    "url_path_for_request": "urls",
    "url_path_for_run": "urls",
    "without_evidence": "views",
}

__all__ = [
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
]


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
