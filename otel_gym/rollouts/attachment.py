"""What was captured of a rollout, attached to its row: capture, observations, trajectory, perf.

    result = attach(row, result, ["/data/model-calls"])

Additive: nothing of the result but the four `ng_*` keys changes. Source: "Attachment" of the rollout specification; the
cases of kind `attach` of the conformance corpus.
"""

from __future__ import annotations

import errno
import logging
import stat
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from otel_gym.rollouts.ids import (
    ATTEMPT_INDEX_KEY,
    ROLLOUT_ID_KEY,
    ROLLOUT_INDEX_KEY,
    TASK_INDEX_KEY,
    maybe_rollout_id_from_run_body,
)
from otel_gym.rollouts.joining import Call, join
from otel_gym.rollouts.observations import OBSERVATIONS_KEY, AgentObservations
from otel_gym.rollouts.perf import PERF_KEY, perf_of
from otel_gym.rollouts.projection import Checked, project
from otel_gym.rollouts.trajectory import TRAJECTORY_KEY
from otel_gym_jsonl.files import capture_path, is_marked
from otel_gym_jsonl.metrics import ModelCallMetrics
from otel_gym_jsonl.model_calls import ModelCallRecord, iter_model_calls

CAPTURE_KEY = "ng_model_call_capture"
ATTACHED_KEYS = (CAPTURE_KEY, OBSERVATIONS_KEY, TRAJECTORY_KEY, PERF_KEY)
"""The keys of a result that an attachment may set; all others are left alone."""

ROW_KEYS = (TASK_INDEX_KEY, ROLLOUT_INDEX_KEY, ATTEMPT_INDEX_KEY, ROLLOUT_ID_KEY)
"""The keys of a row that its result carries on."""

PAYLOAD_FIELDS = ("request", "response", "request_raw", "response_raw")
"""The fields of an attached call that hold what was sent and what came."""

NO_RECORDS = "model_call_capture_no_records"
RECORDS_UNREADABLE = "model_call_capture_records_unreadable"
INCOMPLETE = "model_call_capture_incomplete"
UNREADABLE = "model_call_capture_unreadable"
JOIN_FAILED = "agent_observation_join_failed"
PROJECTION_FAILED = "trajectory_projection_failed"
"""The gap codes of an attachment."""

LOCK_TIMEOUT_S = 30.0
"""How long the capture file of a rollout may stay locked by another process before it counts as unreadable."""

_log = logging.getLogger(__name__)

Capture = dict[str, Any]


def attach(
    row: Mapping[str, Any],
    result: Mapping[str, Any],
    capture_dirs: Iterable[str | Path],
    *,
    include_payloads: bool = True,
    observability_enabled: bool = True,
    rollout_latency_ms: float | None = None,
) -> dict[str, Any]:
    """The result with what was captured of its rollout; the one given is not changed, and shares its values.

    Args:
        row: what was dispatched: its `_ng_*` keys say which rollout it is, and are copied into the result.
        result: what the agent gave back, with `ng_agent_observations` and `ng_trajectory` if it reports them.
        capture_dirs: every directory that model servers wrote to; none: nothing was captured.
        include_payloads: whether requests and answers of the calls are attached.
        observability_enabled: whether `ng_perf` is wanted.
        rollout_latency_ms: how long the rollout took, in milliseconds.

    Raises:
        InvalidRolloutIdError: the row names an id that no rollout may have (also a ValueError).
    """
    merged = {**result, **{key: row[key] for key in ROW_KEYS if key in row}}
    checked = _merge(row, merged, capture_dirs, include_payloads=include_payloads)
    if _project(row, merged, checked) and observability_enabled:
        attach_perf(merged, rollout_latency_ms)
    return merged


def merge_capture(
    row: Mapping[str, Any],
    result: MutableMapping[str, Any],
    capture_dirs: Iterable[str | Path],
    *,
    include_payloads: bool = True,
) -> None:
    """First step: set `ng_model_call_capture`, and join the agent's observations with it.

    A row without a rollout id, or no directory: nothing happens.

    Raises: as `attach`.
    """
    _merge(row, result, capture_dirs, include_payloads=include_payloads)


def _merge(
    row: Mapping[str, Any],
    result: MutableMapping[str, Any],
    capture_dirs: Iterable[str | Path],
    *,
    include_payloads: bool,
) -> Checked | None:
    rollout_id = maybe_rollout_id_from_run_body(row)
    directories = [Path(directory) for directory in capture_dirs]
    if rollout_id is None or not directories:
        return None
    capture = read_capture(rollout_id, directories)
    joined: AgentObservations | None = None
    if (reported := result.get(OBSERVATIONS_KEY)) is not None:
        try:
            joined = join(AgentObservations.model_validate(reported), capture["calls"])
        except ValidationError as exc:
            _log.warning("rollout %s: %s cannot be joined: %s", rollout_id, OBSERVATIONS_KEY, exc)
            _add_gap(capture, JOIN_FAILED)
        else:
            result[OBSERVATIONS_KEY] = joined.model_dump()
    if not include_payloads:
        _drop_payloads(capture)
    result[CAPTURE_KEY] = capture
    return Checked(joined)


def attach_trajectory(row: Mapping[str, Any], result: MutableMapping[str, Any]) -> bool:
    """Second step: set `ng_trajectory`, and take the payloads, which it holds now, from the attached calls.

    If no trajectory can be made, the payloads stay, and so does a producer's trajectory; a gap of the capture says
    why. Without a capture, observations and a producer's trajectory nothing happens.

    Returns:
        whether a trajectory was made.
    """
    return _project(row, result, None)


def _project(row: Mapping[str, Any], result: MutableMapping[str, Any], checked: Checked | None) -> bool:
    rollout_id = maybe_rollout_id_from_run_body(row)
    nothing = result.get(CAPTURE_KEY) is None and result.get(OBSERVATIONS_KEY) is None
    if rollout_id is None or (nothing and not isinstance(result.get(TRAJECTORY_KEY), dict)):
        return False
    try:
        trajectory = project(row, rollout_id, result, checked)
    except Exception as exc:  # noqa: BLE001 - whatever was captured, the row keeps its evidence
        _log.warning("rollout %s: no trajectory can be made: %s", rollout_id, exc)
        if isinstance(capture := result.get(CAPTURE_KEY), dict):
            result[CAPTURE_KEY] = capture = dict(capture)
            _add_gap(capture, PROJECTION_FAILED, type(exc).__name__)
        return False
    result[TRAJECTORY_KEY] = trajectory
    if isinstance(capture := result.get(CAPTURE_KEY), dict):
        result[CAPTURE_KEY] = capture = dict(capture)
        _drop_payloads(capture)
    return True


def attach_perf(result: MutableMapping[str, Any], rollout_latency_ms: object = None) -> None:
    """Third step, after a trajectory was made: set `ng_perf`, where that has an invocation."""
    perf = perf_of(result[TRAJECTORY_KEY], rollout_latency_ms)
    if perf is not None:
        result[PERF_KEY] = perf


def read_capture(rollout_id: str, directories: Iterable[Path]) -> Capture:
    """`{rollout_id, metrics, calls, [gaps]}` of a rollout, from every directory that has a file of it.

    Raises:
        InvalidRolloutIdError: the id cannot name a file.
    """
    calls: list[Call] = []
    metrics = ModelCallMetrics()
    damaged = 0
    incomplete = unreadable = False
    for directory in directories:
        path = capture_path(directory, rollout_id)
        incomplete = incomplete or is_marked(directory, rollout_id)
        try:
            for call in _calls(path):
                if isinstance(call, ModelCallRecord):
                    metrics.add(call)
                    calls.append(fields_of(call))
                else:
                    damaged += 1
        except OSError as exc:
            _log.warning("rollout %s: its capture file cannot be read: %s", rollout_id, exc)
            unreadable = True
    capture: Capture = {"rollout_id": rollout_id, "metrics": metrics.totals(), "calls": calls}
    if damaged:
        _add_gap(capture, RECORDS_UNREADABLE, f"count={damaged}")
    if incomplete:
        _add_gap(capture, INCOMPLETE)
    if unreadable:
        _add_gap(capture, UNREADABLE)
    if not calls and "gaps" not in capture:
        _add_gap(capture, NO_RECORDS)
    return capture


def fields_of(call: ModelCallRecord) -> Call:
    """The fields of a call, in order, sharing its request and answer."""
    fields = dict(call.__dict__)
    fields["model_ref"] = None if call.model_ref is None else dict(call.model_ref.__dict__)
    return fields


def _calls(path: Path) -> Iterable[object]:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):  # a pipe would be waited for
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    for _, call in iter_model_calls(path, lock_timeout_s=LOCK_TIMEOUT_S):
        yield call


def _drop_payloads(capture: Capture) -> None:
    """Replaces the list of calls; the calls themselves are shared with the caller."""
    calls = capture.get("calls")
    if isinstance(calls, list):
        capture["calls"] = [
            {name: value for name, value in call.items() if name not in PAYLOAD_FIELDS}
            if isinstance(call, dict)
            else call
            for call in calls
        ]


def _add_gap(capture: Capture, code: str, detail: str | None = None) -> None:
    found = capture.get("gaps")
    gap = {"code": code} if detail is None else {"code": code, "detail": detail}
    capture["gaps"] = [*(found if isinstance(found, list) else ()), gap]
