"""`otel-gym collect` on the example's team of agents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demo.server import ROOT, serving

AGENT = "examples.agent_team:app"
TASK = {"_ng_task_index": 1, "question": "Which city has more people, Oslo or Bergen?"}
ROLLOUT = "1-0"
LONG = ("conversation", "request", "response", "question", "answer")


class CollectError(RuntimeError):
    """The collection failed, or its rollout is not whole."""


def collect(model_server: str, out: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """Collect one rollout of the team, and say how; its row, less its longer parts.

    Args:
        model_server: URL of the captured model server.
        out: where the files go.
        variables: that switch capture on, and say where spans go.

    Raises:
        ChildError: the agent's server did not come up.
        CollectError: the rollout has no result, or something of it was not captured.
    """
    tasks, rollouts = out / "tasks.jsonl", out / "rollouts.jsonl"
    tasks.write_text(json.dumps(TASK) + "\n")
    rollouts.unlink(missing_ok=True)  # of an earlier demo
    known = {**variables, "OTEL_GYM_MODEL_SERVERS": json.dumps({"policy": model_server})}
    with serving(out / "agent.log", known, AGENT) as agent:
        command = ["collect", "--agent", agent, "--input", str(tasks), "--output", str(rollouts)]
        command += ["--capture-dir", variables["OTEL_GYM_MODEL_CALL_CAPTURE_DIR"], "--quiet"]
        print(f"  otel-gym {' '.join(command)}")
        done = subprocess.run(
            [sys.executable, "-m", "otel_gym", *command],
            cwd=ROOT,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
    print("".join(f"  {line}\n" for line in done.stdout.splitlines()), end="")
    if done.returncode:
        raise CollectError(f"otel-gym collect ended with exit code {done.returncode}: {done.stderr}")
    [row] = [json.loads(line) for line in rollouts.read_text().splitlines()]
    if gaps := [*row["ng_model_call_capture"].get("gaps", ()), *row["ng_trajectory"]["gaps"]]:
        raise CollectError(f"the collected rollout has gaps: {gaps}")
    return _shortened(row)


def _shortened(row: dict[str, Any]) -> dict[str, Any]:
    """One call, one invocation, one turn, one tool call of each list; no content."""
    capture, trajectory = row["ng_model_call_capture"], row["ng_trajectory"]
    lists = ("invocations", "turns", "model_calls", "tool_calls")
    return {
        **{key: value for key, value in row.items() if not key.startswith("ng_") and key != "answers"},
        "ng_model_call_capture": {**capture, "calls": _first(capture["calls"])},
        "ng_trajectory": {**trajectory, **{name: _first(trajectory[name]) for name in lists}},
        "ng_perf": row["ng_perf"],
    }


def _first(items: list[dict[str, Any]]) -> list[Any]:
    known = {key: value for key, value in items[0].items() if key not in LONG and value not in (None, [], {})}
    return [known, f"… and {len(items) - 1} more"]
