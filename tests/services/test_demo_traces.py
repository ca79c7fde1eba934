"""The demo with a backend that takes its spans."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from demo.rollouts import ROLLOUTS
from otel_gym.trace_ids import RUN_ID_FILE, rollout_trace
from tests.services.jaeger import Jaeger

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.servers
def test_with_a_backend_each_rollout_is_a_trace_there_and_the_demo_names_it(jaeger: Jaeger, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demo", "--out", str(tmp_path)]
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": jaeger.otlp_http}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=environment)
    assert ("", 0) == (done.stderr, done.returncode)
    run_id = (tmp_path / "model-calls" / RUN_ID_FILE).read_text().strip()
    expected = [f"{rollout_trace(run_id, rollout.id).trace_id:032x}" for rollout in ROLLOUTS]
    assert expected == re.findall(r"^  trace: (\w+)$", done.stdout, re.MULTILINE)
    for trace, rollout in zip(expected, ROLLOUTS, strict=True):
        assert len(rollout.categories) == len(jaeger.wait_for(trace, len(rollout.categories)))
