"""Servers whose code is not touched: each launcher, framework and instrumentation, with capture from outside.

Each time: a call without the key is refused under the prefix too, a call with it is served on the path that the
application knows, and leaves one record.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from otel_gym.testing import answer
from otel_gym_jsonl import CaptureStore
from tests.ports import free_port
from tests.servers.keyed import CHAT, KEY
from tests.servers.processes import ROOT, environment, listening, running, wait_until
from tests.servers.wire import exchange, request

pytestmark = pytest.mark.servers

SCRIPTS = Path(sys.executable).parent
GUNICORN = ["gunicorn", "tests.servers.keyed:with_{framework}", "--bind", "127.0.0.1:{{port}}", "--no-control-socket"]
GUNICORN += ["--worker-class", "uvicorn.workers.UvicornWorker"]
UVICORN = ["uvicorn", "tests.servers.keyed:with_{framework}", "--port", "{{port}}"]
SERVERS = {
    "uvicorn": UVICORN,
    "uvicorn, 2 workers": [*UVICORN, "--workers", "2"],
    "gunicorn": GUNICORN,
    "gunicorn, preloaded": [*GUNICORN, "--preload"],
    "hypercorn": ["hypercorn", "tests.servers.keyed:with_{framework}", "--bind", "127.0.0.1:{{port}}"],
    "granian": ["granian", "--interface", "asgi", "tests.servers.keyed:with_{framework}", "--port", "{{port}}"],
    "python -m": ["tests.servers.keyed", "{framework}", "{{port}}"],
}
# What opentelemetry-instrument switches on beside ours; where it does not, the application does so in its code.
CONTRIB = {"off": {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "asgi,fastapi,httpx"}, "on": {"CONTRIB": "on"}}
SILENT = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}


def launcher(way: str, directory: Path) -> tuple[list[str], dict[str, str]]:
    """What stands before the server's command, and in its environment."""
    if way == "otel-gym run":
        return [sys.executable, "-m", "otel_gym", "run", "--capture-dir", str(directory), "--"], {}
    return [str(SCRIPTS / "opentelemetry-instrument"), "--"], {
        **SILENT,
        "OTEL_GYM_MODEL_CALL_CAPTURE_DIR": str(directory),
    }


@pytest.mark.parametrize("way", ["opentelemetry-instrument", "otel-gym run"])
@pytest.mark.parametrize("contrib", CONTRIB)
@pytest.mark.parametrize("framework", ["fastapi", "starlette"])
@pytest.mark.parametrize("server", SERVERS)
def test_a_server_is_captured_outside_its_authentication(
    server: str, framework: str, contrib: str, way: str, tmp_path: Path
) -> None:
    before, variables = launcher(way, tmp_path / "captures")
    variables |= CONTRIB[contrib]
    if way == "opentelemetry-instrument" and framework == "fastapi":
        variables.pop("CONTRIB", None)  # it is the launcher's business
    command = [part.format(framework=framework) for part in SERVERS[server]]
    with listening(command, tmp_path / "server.log", variables, before) as port:
        for path in (CHAT, f"/ng-rollout/keyless{CHAT}", f"/ng-rollout/keyless/training-token-capture{CHAT}"):
            assert exchange(port, [request(path, "plain")]).startswith(b"HTTP/1.1 401"), path
        for rollout_id, mounted in (("0-0", ""), ("mounted", "/mounted")):
            path = f"/ng-rollout/{rollout_id}{mounted}{CHAT}"
            got = exchange(port, [request(path, "plain", f"Authorization: {KEY}")])
            head, _, body = got.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), got
            assert (answer("chat", "hi"), True) == (
                json.loads(body),
                f"x-path: {mounted}{CHAT}\r\n".encode() in head.lower() + b"\r\n",
            )
            assert mounted or 1 == len(CaptureStore(tmp_path / "captures").read(rollout_id))
    store = CaptureStore(tmp_path / "captures")
    log = (tmp_path / "server.log").read_text()
    assert ["0-0", "keyless"] == sorted(store.rollout_ids())  # what is mounted elsewhere is no route of a model call
    assert [(401, "auth")] * 2 == [(call["status_code"], call["error_category"]) for call in store.read("keyless")]
    assert ("Traceback" in log, log.count("otel-gym: capture is on")) == (False, int(way == "otel-gym run")), log


# ---- a setting that cannot be used


@pytest.mark.parametrize("server", SERVERS)
def test_a_setting_that_cannot_be_used_fails_the_start_of_the_server(server: str, tmp_path: Path) -> None:
    """It ends by itself, says why in each process that would have served, and serves nothing.

    How often a server repeats the message, and whether its exit code tells, is its own business.
    """
    before, variables = launcher("opentelemetry-instrument", Path("relative"))
    command = [part.format(framework="fastapi").format(port=free_port()) for part in SERVERS[server]]
    done = subprocess.run(
        [*before, sys.executable, "-m", *command],
        cwd=ROOT,
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = done.stdout + done.stderr
    assert ("OTEL_GYM_MODEL_CALL_CAPTURE_DIR: got 'relative'; allowed:" in said, "startup complete" in said) == (
        True,
        False,
    ), said
    assert server not in ("uvicorn", "gunicorn", "python -m") or 1 == said.count("'relative'"), said


# ---- beside OpenTelemetry's own instrumentation


def test_the_span_of_fastapis_instrumentation_has_the_route_of_the_application(tmp_path: Path) -> None:
    """It stands inside of us, where the prefix is gone; two launchers at once make one record."""
    before, variables = launcher("opentelemetry-instrument", tmp_path / "captures")
    before = [*launcher("otel-gym run", tmp_path / "captures")[0], *before]
    variables |= {"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_SCHEDULE_DELAY": "50"}
    command = [part.format(framework="fastapi") for part in SERVERS["uvicorn"]]
    port = free_port()
    with running([part.format(port=port) for part in command], tmp_path / "log", variables, before) as child:
        wait_until(lambda: answers(port))
        asked = request(f"/ng-rollout/0-0{CHAT}", "plain", f"Authorization: {KEY}")
        assert exchange(port, [asked]).startswith(b"HTTP/1.1 200")
        assert child.stdout is not None
        seen = ""
        while f'"http.route": "{CHAT}"' not in seen:
            line = child.stdout.readline().decode()
            assert line, seen
            seen += line
    assert 1 == len(CaptureStore(tmp_path / "captures").read("0-0"))


def answers(port: int) -> bool:
    with contextlib.suppress(OSError):
        return exchange(port, [request("/nothing", "plain")]).startswith(b"HTTP/1.1 404")
    return False
