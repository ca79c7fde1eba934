"""The demo with a backend that takes its spans."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from demo import collecting
from demo.rollouts import ROLLOUTS
from otel_gym.trace_ids import RUN_ID_FILE, rollout_trace
from scripts.build_services import JAEGER
from tests.servers.processes import ROOT, environment
from tests.services.demo_beside_jaeger import OTLP_PORTS, PAGE, QUERY_PORTS, SPANS
from tests.services.jaeger import Jaeger


@pytest.mark.servers
def test_with_a_backend_each_rollout_is_a_trace_there_and_the_demo_names_it(jaeger: Jaeger, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demo", "--out", str(tmp_path)]
    variables = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": jaeger.otlp_http}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=variables)
    assert ("", 0) == (done.stderr, done.returncode)
    run_id = (tmp_path / "model-calls" / RUN_ID_FILE).read_text().strip()
    assert traces(run_id) == re.findall(r"^  trace: (\w+)$", done.stdout, re.MULTILINE)
    for trace, rollout in zip(traces(run_id), ROLLOUTS, strict=False):
        assert len(rollout.categories) == len(jaeger.wait_for(trace, len(rollout.categories)))


@pytest.mark.servers
def test_beside_a_jaeger_on_its_standard_ports_each_rollouts_page_is_named_and_opens(tmp_path: Path) -> None:
    """In a network of its own, where these ports are nobody else's; where that cannot be had, on this machine's."""
    if not JAEGER.is_built():
        pytest.skip(f"Jaeger is not built: make services ({JAEGER.patience})")
    command = [sys.executable, "-m", "tests.services.demo_beside_jaeger", str(tmp_path)]
    done = subprocess.run(
        [*network_of_its_own(), *command], cwd=ROOT, capture_output=True, text=True, timeout=240, env=environment({})
    )
    assert ("", 0) == (done.stderr, done.returncode)
    told = json.loads(done.stdout)
    assert (0, "") == (told["ended"], told["said"])
    run_id = (tmp_path / "out" / "model-calls" / RUN_ID_FILE).read_text().strip()
    assert [f"{PAGE}{trace}" for trace in traces(run_id)] == list(told["pages"])
    assert SPANS == [len(spans) for spans in told["pages"].values()]
    *alone, collected = told["pages"].values()
    assert [[("chat scripted-1", None)] * count for count in SPANS[:-1]] == [list(map(tuple, spans)) for spans in alone]
    assert [["invoke_agent examples.agent_team", None]] == [span for span in collected if span[1] is None]
    assert {"invoke_agent", "execute_tool", "chat"} == {name.split()[0] for name, _ in collected}


def traces(run_id: str) -> list[str]:
    """The trace of each rollout, the collected one last."""
    ids = [*(rollout.id for rollout in ROLLOUTS), collecting.ROLLOUT]
    return [f"{rollout_trace(run_id, rollout_id).trace_id:032x}" for rollout_id in ids]


def network_of_its_own() -> list[str]:
    """What to put before a command; nothing where the kernel gives no namespaces and the standard ports are free."""
    for launcher in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
        with contextlib.suppress(OSError):
            if subprocess.run([*launcher, "true"], capture_output=True).returncode == 0:
                return launcher
    for port in (*OTLP_PORTS, *QUERY_PORTS):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                pytest.skip(f"port {port} is taken, and there is no network namespace to be had")
    return []
