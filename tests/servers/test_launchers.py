"""Servers as people start them: from the command line, with workers, set by their environment alone."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from otel_gym_jsonl import CaptureStore
from tests.servers.application import PATHS
from tests.servers.processes import ROOT, Served, environment, listening
from tests.servers.wire import exchange, request

pytestmark = pytest.mark.servers

CAPTURED = "tests.servers.application:captured"
LAUNCHERS = {
    "uvicorn, h11, 4 workers": ["uvicorn", CAPTURED, "--port", "{port}", "--workers", "4", "--http", "h11"],
    "uvicorn, httptools, 4 workers": ["uvicorn", CAPTURED, "--port", "{port}", "--workers", "4", "--http", "httptools"],
    "gunicorn, preloaded": [
        "gunicorn",
        "tests.servers.application:captured",
        "--preload",
        "--no-control-socket",
        *("--bind", "127.0.0.1:{port}"),
        *("--workers", "3"),
        *("--worker-class", "uvicorn.workers.UvicornWorker"),
    ],
    "hypercorn, 2 workers": ["hypercorn", CAPTURED, "--bind", "127.0.0.1:{port}", "--workers", "2"],
}
CALLS_AT_ONCE = 24
ROUNDS = 20


@pytest.mark.parametrize("command", LAUNCHERS.values(), ids=LAUNCHERS)
def test_calls_of_one_rollout_in_many_processes_are_all_in_one_file(command: list[str], tmp_path: Path) -> None:
    """Until more than one process has served some, which the system decides."""
    variables = {
        "OTEL_GYM_MODEL_CALL_CAPTURE_DIR": str(tmp_path / "captures"),
        "OTEL_GYM_MODEL_SERVER_NAME": "policy",
    }
    pids: list[bytes] = []
    records: list[dict[str, Any]] = []
    with listening(command, tmp_path / "server.log", variables) as port, ThreadPoolExecutor(CALLS_AT_ONCE) as pool:

        def call(number: int) -> bytes:
            path = list(PATHS)[number % len(PATHS)]
            got = exchange(port, [request(f"/ng-rollout/7-1{path}", ("plain", "pieces", "stream")[number % 2])])
            assert got.startswith(b"HTTP/1.1 200"), got
            return got.lower().partition(b"x-pid: ")[2].partition(b"\r\n")[0]

        for _ in range(ROUNDS):
            pids += pool.map(call, range(CALLS_AT_ONCE))
            records = CaptureStore(tmp_path / "captures").read("7-1")  # every client has seen the end of its answer
            assert len(pids) == len(records)
            if len(set(pids)) > 1:
                break
    assert len(set(pids)) > 1
    assert len(pids) == len({record["model_call_id"] for record in records})
    assert {(200, None, "policy")} == {
        (record["status_code"], record["error_category"], record["model_ref"]["name"]) for record in records
    }
    assert ["7-1.capture.jsonl"] == [path.name for path in (tmp_path / "captures").iterdir()]
    assert "Traceback" not in (tmp_path / "server.log").read_text()


# ---- behind a proxy path


def test_the_root_path_of_the_server_counts(served: Served, rollout_id: str) -> None:
    """uvicorn puts it before each path; the proxy has taken it off."""
    seen = exchange(
        served.ports["rooted"],
        [f"GET /ng-rollout/{rollout_id}/v1/x%20y HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n".encode()],
    )
    assert {
        "method": "GET",
        "path": "/proxy/v1/x y",
        "root_path": "/proxy",
        "raw_path": "/proxy/v1/x%20y",
        "query_string": "",
        "rollout": rollout_id,
    } == json.loads(seen.partition(b"\r\n\r\n")[2])
    got = exchange(served.ports["rooted"], [request(f"/ng-rollout/{rollout_id}/v1/messages", "stream")])
    assert (True, 1) == (got.startswith(b"HTTP/1.1 200"), len(served.records(rollout_id)))


@pytest.mark.parametrize(
    ("server", "location"),
    [
        ("h11", "http://model.test:80/ng-rollout/{id}/training-token-capture/v1/models"),
        ("hypercorn", "http://model.test:80/ng-rollout/{id}/training-token-capture/v1/models"),
        ("rooted", "http://model.test:80/proxy/ng-rollout/{id}/training-token-capture/v1/models"),
        ("h11-off", "http://model.test:80/v1/models"),
    ],
)
def test_a_redirect_keeps_its_client_in_the_rollout(
    served: Served, rollout_id: str, server: str, location: str
) -> None:
    path = f"/ng-rollout/{rollout_id}/training-token-capture/v1/models/"
    head = f"GET {path} HTTP/1.1\r\nHost: model.test:80\r\nConnection: close\r\n\r\n".encode()
    got = exchange(served.ports[server], [head])
    assert f"location: {location.format(id=rollout_id)}\r\n".encode() in got


@pytest.mark.parametrize("server", ["h11", "httptools", "hypercorn"])
def test_an_odd_id_in_a_redirect_writes_no_header_of_its_own(served: Served, server: str) -> None:
    head = b"GET /ng-rollout/a%0D%0AX-Evil:%201%E2%82%AC/v1/models/ HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n"
    got = exchange(served.ports[server], [head])
    assert got.startswith(b"HTTP/1.1 307")
    assert b"/ng-rollout/a%0D%0AX-Evil:%201%E2%82%AC/v1/models\r\n" in got


# ---- starts that must fail

WRAPPED = CAPTURED
INSTRUMENTED = "examples.model_server:app"
ADDED = "tests.servers.added:app"


@pytest.fixture
def unusable(tmp_path: Path) -> str:
    (tmp_path / "file").touch()
    return str(tmp_path / "file" / "captures")


@pytest.mark.parametrize("app", [WRAPPED, INSTRUMENTED, ADDED])
def test_a_directory_that_cannot_be_used_fails_the_start(app: str, unusable: str) -> None:
    code, said = started(app, {"OTEL_GYM_MODEL_CALL_CAPTURE_DIR": unusable})
    assert (code != 0, 1) == (True, said.count(f"OTEL_GYM_MODEL_CALL_CAPTURE_DIR: got '{unusable}'"))
    assert "Uvicorn running" not in said


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({"OTEL_GYM_MODEL_CALL_CAPTURE_DIR": "captures"}, "absolute"),
        ({"OTEL_GYM_MODEL_CALL_CAPTURE_DIR": "/proc/captures"}, "cannot be used"),
        ({"OTEL_GYM_OBSERVABILITY_ENABLED": "true"}, "got nothing"),
    ],
)
def test_so_does_every_other_setting_of_the_directory(variables: dict[str, str], word: str) -> None:
    code, said = started(ADDED, variables)
    assert (code != 0, 1) == (True, said.count("OTEL_GYM_MODEL_CALL_CAPTURE_DIR: got"))
    assert word in said
    assert "Uvicorn running" not in said


def started(app: str, variables: dict[str, str]) -> tuple[int, str]:
    """Exit code and stderr of a uvicorn that should not come up."""
    done = subprocess.run(
        [sys.executable, "-m", "uvicorn", app, "--port", "0"],
        cwd=ROOT,
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stderr
