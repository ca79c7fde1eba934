"""Servers whose code is not touched: each launcher, framework and instrumentation, with capture from outside.

Each time: a call without the key is refused under the prefix too, a call with it is served on the path that the
application knows, and leaves one record.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from otel_gym.testing import answer
from otel_gym_jsonl import CaptureStore
from tests.ports import free_port
from tests.servers.keyed import CHAT, KEY
from tests.servers.processes import ROOT, environment, listening
from tests.servers.wire import exchange, request
from tests.services.receiver import http_receiver, plain

pytestmark = pytest.mark.servers

SCRIPTS = Path(sys.executable).parent
TWO = ["--workers", "2"]
KEYED = "tests.servers.keyed:with_{framework}"
GUNICORN = ["gunicorn", KEYED, "--bind", "127.0.0.1:{{port}}", "--no-control-socket"]
GUNICORN += ["--worker-class", "uvicorn.workers.UvicornWorker", *TWO]
UVICORN = ["uvicorn", KEYED, "--port", "{{port}}"]
SERVERS = {
    "uvicorn": UVICORN,
    "uvicorn, 2 workers": [*UVICORN, *TWO],
    "gunicorn, 2 workers": GUNICORN,
    "gunicorn, 2 workers, preloaded": [*GUNICORN, "--preload"],
    "gunicorn's own ASGI worker, 2 workers": [*GUNICORN, "--worker-class", "asgi"],
    "hypercorn, 2 workers": ["hypercorn", KEYED, "--bind", "127.0.0.1:{{port}}", *TWO],
    "granian, 2 workers": ["granian", "--interface", "asgi", KEYED, "--port", "{{port}}", *TWO],
    "python -m": ["tests.servers.keyed", "{framework}", "{{port}}"],
    "python -m, 2 workers": ["tests.servers.keyed", "{framework}", "{{port}}", "2"],
}
CALLS_AT_ONCE = 16
ROUNDS = 40
PAUSE_SECONDS = 0.5  # of a round that one process served: on a busy machine the other is still on its way
# What opentelemetry-instrument switches on beside ours; where it does not, the application does so in its code.
CONTRIB = {"off": {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "asgi,fastapi,httpx,openai"}, "on": {"CONTRIB": "on"}}
SILENT = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}


def launcher(way: str, directory: Path) -> tuple[list[str], dict[str, str]]:
    """What stands before the server's command, and in its environment."""
    if way == "otel-gym run":
        return [sys.executable, "-m", "otel_gym", "run", "--capture-dir", str(directory), "--"], {}
    return [str(SCRIPTS / "opentelemetry-instrument"), "--"], {
        **SILENT,
        "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "openai",  # imports the SDK of OpenAI into every process
        "OTEL_GYM_MODEL_CALL_CAPTURE_DIR": str(directory),
    }


WAYS = ["opentelemetry-instrument", "otel-gym run"]
# Where authentication stands: in middleware, beside contrib's instrumentation and without it; around a FastAPI
# application; in the call of a subclass of it; around what is no Starlette application at all.
APPLICATIONS = [
    *itertools.product(("fastapi", "starlette"), CONTRIB, WAYS),
    ("wrapped", "off", "opentelemetry-instrument"),
    ("subclass", "off", "otel-gym run"),
    ("router", "off", "otel-gym run"),
]


@pytest.mark.parametrize(("framework", "contrib", "way"), APPLICATIONS)
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
        if "2 workers" in server:
            calls_in_two_processes(port, tmp_path / "captures")
    store = CaptureStore(tmp_path / "captures")
    log = (tmp_path / "server.log").read_text()
    # What is mounted elsewhere is no route of a model call.
    assert ["0-0", "keyless", *(["many"] if "2 workers" in server else [])] == sorted(store.rollout_ids())
    assert [(401, "auth")] * 2 == [(call["status_code"], call["error_category"]) for call in store.read("keyless")]
    assert ("Traceback" in log, log.count("otel-gym: capture is on")) == (False, int(way == "otel-gym run")), log


def calls_in_two_processes(port: int, captures: Path) -> None:
    """Calls of one rollout, until more than one process has served some, which the system decides: all are recorded."""
    asked = [request(f"/ng-rollout/many{CHAT}", "plain", f"Authorization: {KEY}")]
    pids: list[bytes] = []
    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        for _ in range(ROUNDS):
            for got in pool.map(lambda _: exchange(port, asked), range(CALLS_AT_ONCE)):
                assert got.startswith(b"HTTP/1.1 200"), got
                pids.append(got.lower().partition(b"x-pid: ")[2].partition(b"\r\n")[0])
            records = CaptureStore(captures).read("many")
            assert [200] * len(pids) == [record["status_code"] for record in records]
            if len(set(pids)) > 1:
                return
            time.sleep(PAUSE_SECONDS)
    raise AssertionError(f"{len(pids)} calls were all served by one process")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("server", SERVERS)
def test_each_call_has_its_span_when_the_server_has_ended(server: str, way: str, tmp_path: Path) -> None:
    """Through the provider that the launcher set up, or by our own exporter: in worker processes too, each once."""
    before, variables = launcher(way, tmp_path / "captures")
    variables |= CONTRIB["off"] | {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    command = [part.format(framework="fastapi") for part in SERVERS[server]]
    with http_receiver() as receiver:
        variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = receiver.endpoint
        with listening(command, tmp_path / "server.log", variables, before) as port:
            if "2 workers" in server:
                calls_in_two_processes(port, tmp_path / "captures")
            else:
                exchange(port, [request(f"/ng-rollout/many{CHAT}", "plain", f"Authorization: {KEY}")])
        told = [plain(span.attributes).get("otel_gym.model_call.id") for span in receiver.spans]
    calls = [record["model_call_id"] for record in CaptureStore(tmp_path / "captures").read("many")]
    assert sorted(calls) == sorted(call for call in told if call is not None)


@pytest.mark.parametrize("server", [server for server in SERVERS if "python" not in server])
def test_capture_may_be_switched_on_while_the_server_imports_the_application(server: str, tmp_path: Path) -> None:
    """By a plugin of the application, or in its code: the server is on its way then."""
    command = [part.format(framework="wrapped").replace("keyed", "switching") for part in SERVERS[server]]
    variables = {"OTEL_GYM_MODEL_CALL_CAPTURE_DIR": str(tmp_path / "captures")}
    with listening(command, tmp_path / "server.log", variables) as port:
        path = f"/ng-rollout/0-0{CHAT}"
        assert exchange(port, [request(path, "plain")]).startswith(b"HTTP/1.1 401")
        assert exchange(port, [request(path, "plain", f"Authorization: {KEY}")]).startswith(b"HTTP/1.1 200")
    assert [401, 200] == [call["status_code"] for call in CaptureStore(tmp_path / "captures").read("0-0")]


WANDERING = """
import os, pathlib, tempfile
os.chdir(tempfile.mkdtemp(dir=pathlib.Path(__file__).parent))  # each process that loads it to a directory of its own
from tests.servers.application import application as app
"""


def test_workers_that_change_directory_write_where_run_was_told_to(tmp_path: Path) -> None:
    (tmp_path / "wandering.py").write_text(WANDERING)
    relative = os.path.relpath(tmp_path / "captures", ROOT)
    before = [sys.executable, "-m", "otel_gym", "run", "--capture-dir", relative, "--"]
    command = ["uvicorn", "wandering:app", "--app-dir", str(tmp_path), "--port", "{port}", *TWO]
    log = tmp_path / "server.log"
    with listening(command, log, {}, before) as port:
        for _ in range(4):
            assert exchange(port, [request(f"/ng-rollout/0-0{CHAT}", "plain")]).startswith(b"HTTP/1.1 200")
    said = Path(log.read_text().partition(" go to ")[2].partition(",")[0])
    assert (True, tmp_path / "captures") == (said.is_absolute(), said.resolve())
    assert 4 == len(CaptureStore(tmp_path / "captures").read("0-0"))
    wandered = [path for path in tmp_path.iterdir() if path.is_dir() and path.name.startswith("tmp")]
    assert ([True, True], []) == ([len(wandered) >= 2, said.is_dir()], [*tmp_path.glob("tmp*/*")])


# ---- a setting that cannot be used


NO_LIFESPAN = {
    "uvicorn, no lifespan": [*UVICORN, "--lifespan", "off"],
    "granian, no lifespan": ["granian", "--interface", "asginl", KEYED, "--port", "{{port}}"],
}


@pytest.mark.parametrize("server", [*SERVERS, *NO_LIFESPAN])
def test_a_setting_that_cannot_be_used_fails_the_start_of_the_server(server: str, tmp_path: Path) -> None:
    """It ends by itself, says why in each process that would have served, and serves nothing.

    How often a server repeats the message, and whether its exit code tells, is its own business.
    """
    before, variables = launcher("opentelemetry-instrument", Path("relative"))
    command = {**SERVERS, **NO_LIFESPAN}[server]
    command = [part.format(framework="fastapi").format(port=free_port()) for part in command]
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
    assert "workers" in server or 1 == said.count("'relative'"), said
    assert "/otel_gym/" not in said, said  # no traceback through us


def test_without_a_word_of_capture_in_the_environment_nothing_is_done(tmp_path: Path) -> None:
    """otel-gym is installed, and OpenTelemetry's launcher is there for something else: no prefix is removed."""
    before, variables = launcher("opentelemetry-instrument", tmp_path)
    variables["OTEL_GYM_MODEL_CALL_CAPTURE_DIR"] = ""
    command = [part.format(framework="fastapi") for part in UVICORN]
    with listening(command, tmp_path / "server.log", variables, before) as port:
        got = exchange(port, [request(f"/ng-rollout/0-0{CHAT}", "plain", f"Authorization: {KEY}")])
    assert got.startswith(b"HTTP/1.1 404"), got
    assert "otel-gym" not in (tmp_path / "server.log").read_text()
