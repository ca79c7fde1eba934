"""`otel-gym run`: the command is started as it would be, with capture in its environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import httpx
import pytest

from otel_gym.cli.run import LAUNCHED
from tests.servers.processes import listening
from tests.services.captured import BODIES, PATHS, PLAYED
from tests.services.receiver import http_receiver

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))"
STATE = (
    "import sys; from otel_gym import served; "
    "print(served.captures_all(), 'opentelemetry' in sys.modules, 'pydantic' in sys.modules)"
)
DIRECTORY, SWITCH = "OTEL_GYM_MODEL_CALL_CAPTURE_DIR", "OTEL_GYM_OBSERVABILITY_ENABLED"
OURS = os.pathsep.join(filter(None, sys.path))


def run(directory: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "otel_gym", "run", *arguments],
        cwd=directory,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": OURS, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


def shown(done: subprocess.CompletedProcess[str]) -> Any:
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout)


# ---- the command


def test_it_gets_its_arguments_and_directory_as_they_are(tmp_path: Path) -> None:
    arguments = ["--port", "1", "--", "--capture-dir", "x", "", "a b", "$HOME", "é"]
    got, _, directory = shown(run(tmp_path, "--capture-dir", "d", "--", sys.executable, "-c", SHOW, *arguments))
    assert (arguments, str(tmp_path)) == (got, directory)
    got, _, _ = shown(run(tmp_path, "--capture-dir", "d", sys.executable, "-c", SHOW, *arguments))
    assert arguments == got


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", -signal.SIGTERM)])
def test_its_exit_code_and_its_signals_are_its_own(tmp_path: Path, script: str, code: int) -> None:
    done = run(tmp_path, "--capture-dir", "d", "--", "sh", "-c", script)
    assert (code, "", 1) == (done.returncode, done.stdout, len(done.stderr.splitlines()))


def test_it_is_the_same_process(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "otel_gym", "run", "--capture-dir", str(tmp_path), "--", "sh", "-c", "echo $$"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": OURS},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert f"{child.pid}\n" == child.communicate(timeout=60)[0]


# ---- its environment


def test_the_options_become_variables(tmp_path: Path) -> None:
    options = ["--capture-dir", "captures", "--endpoint", "http://127.0.0.1:4318", "--content", "on"]
    done = run(tmp_path, *options, "--server-name", "policy", "--", sys.executable, "-c", SHOW)
    _, environment, _ = shown(done)
    assert (str(tmp_path / "captures"), "true", "policy", [{"endpoint": "http://127.0.0.1:4318"}], "SPAN_ONLY") == (
        environment[DIRECTORY],
        environment[SWITCH],
        environment["OTEL_GYM_MODEL_SERVER_NAME"],
        json.loads(environment["OTEL_GYM_MIRROR_DESTINATIONS"]),
        environment["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"],
    )
    assert (tmp_path / "captures").is_dir()


@pytest.mark.servers
@pytest.mark.parametrize(
    "headers",
    [
        {"OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=s%20cret,other=1"},
        {"OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=wrong", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "X-API-Key=s cret"},
    ],
)
def test_a_backend_that_wants_a_key_gets_the_one_of_the_standard_variables(
    headers: dict[str, str], tmp_path: Path
) -> None:
    with http_receiver(key="s cret") as receiver:
        before = [sys.executable, "-m", "otel_gym", "run", "--capture-dir", str(tmp_path / "captures")]
        before += ["--endpoint", receiver.endpoint, "--"]
        command = ["uvicorn", PLAYED, "--host", "127.0.0.1", "--port", "{port}"]
        with listening(command, tmp_path / "log", headers, before) as port:
            url = f"http://127.0.0.1:{port}/ng-rollout/0-0{PATHS['chat']}"
            assert 200 == httpx.post(url, json=BODIES["chat"], trust_env=False).status_code
            receiver.wait_for(1)
        assert 1 == len(receiver.requests)
        assert "cret" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("before", [None, "", "/a", "/a::/b", f"/a{os.pathsep}{LAUNCHED}"])
def test_what_stood_in_pythonpath_still_does(tmp_path: Path, before: str | None) -> None:
    change = "os.environ.pop('PYTHONPATH')" if before is None else f"os.environ.update(PYTHONPATH={before!r})"
    act = "main(['run', '--capture-dir', 'd', 'sh', '-c', 'echo $PYTHONPATH'])"
    script = f"import os; from otel_gym.cli import main; {change}; {act}"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": OURS},
        capture_output=True,
        text=True,
        timeout=60,
    )
    kept = {None: "", "": "", f"/a{os.pathsep}{LAUNCHED}": "/a"}.get(before, before)
    assert (f"{LAUNCHED}{os.pathsep + kept if kept else ''}\n", "") == (done.stdout, done.stderr.partition("\n")[2])


def test_capture_is_on_in_each_python_that_it_starts(tmp_path: Path) -> None:
    done = run(tmp_path, "--capture-dir", "d", "--", "sh", "-c", f'"{sys.executable}" -c "{STATE}"')
    assert "True False False\n" == done.stdout


# ---- the one line


@pytest.mark.parametrize(
    ("options", "variables", "spans"),
    [
        ([], {}, "no spans but to a tracer provider of the server's own; "),
        (
            ["--content", "on"],
            {},
            "no spans but to a tracer provider of the server's own, nor messages: name an --endpoint to send them to; ",
        ),
        ([], {"OTEL_GYM_MIRROR": "false", "OTEL_TRACES_EXPORTER": "otlp"}, "no spans anywhere; "),
        (["--content", "on"], {"OTEL_GYM_MIRROR": "false"}, "no spans anywhere, and so no messages; "),
        ([], {"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"}, "no spans anywhere"),
        (["--endpoint", "http://u:p@h:4318"], {}, "their spans to http://h:4318 without messages"),
        (["--endpoint", "https://h", "--content", "on"], {}, "their spans to https://h with messages"),
        ([], {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1"}, "their spans to http://h:1 without messages"),
        ([], {"OTEL_TRACES_EXPORTER": "console,otlp"}, "their spans to console without messages and http://localhost:"),
        ([], {"OTEL_GYM_MIRROR": "true"}, "their spans to http://localhost:4318 without messages"),
        (
            [],
            {
                "OTEL_GYM_MIRROR_DESTINATIONS": '[{"endpoint": "http://a"}, {"endpoint": "http://b", "content": true}]',
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://not.this",
            },
            "their spans to http://a without messages and http://b with messages; ",
        ),
    ],
)
def test_it_says_what_it_captures_to_where_and_how_to_switch_it_off(
    tmp_path: Path, options: list[str], variables: dict[str, str], spans: str
) -> None:
    done = run(tmp_path, "--capture-dir", "d", *options, "--", "true", **variables)
    [line] = done.stderr.splitlines()
    assert line.startswith(
        f"otel-gym: capture is on: the model calls under /ng-rollout/<id> go to {tmp_path}/d, {spans}"
    )
    assert line.endswith(f"; {SWITCH}=false switches it off")


def test_it_can_be_switched_off_as_the_line_says(tmp_path: Path) -> None:
    done = run(tmp_path, "--capture-dir", "d", "--", sys.executable, "-c", SHOW, **{SWITCH: "false"})
    assert "false" == shown(done)[1][SWITCH]
    assert (f"capture is off, as {SWITCH} says" in done.stderr, []) == (True, list(tmp_path.iterdir()))


# ---- what cannot be


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        ([], {}, "no command"),
        (["--"], {}, "no command"),
        (["--capture-dir", "d"], {}, "no command"),
        (["--capture-dir", "d", "--", "no-such-command"], {}, "no-such-command: no such command"),
        (["--capture-dir", "d", "--", "/"], {}, "/: no such command"),
        (["--", "touch", "started"], {}, "no capture directory: give --capture-dir DIR"),
        (["--", "touch", "started"], {DIRECTORY: "relative"}, "absolute"),
        (["--capture-dir", "/proc/captures", "--", "touch", "started"], {}, "cannot be used"),
        (["--capture-dir", "", "--", "touch", "started"], {}, "--capture-dir: got ''; allowed: a directory"),
        (["--capture-dir", "d", "--", "touch", "started"], {"OTEL_GYM_WRITER_THREADS": "0"}, "WRITER_THREADS"),
        (["--capture-dir", "d", "--endpoint", "h:4318", "touch", "started"], {}, "--endpoint: got 'h:4318'"),
        (["--capture-dir", "d", "--content", "some", "touch", "started"], {}, "invalid choice"),
        (["--no-such-option", "--", "touch", "started"], {}, "--no-such-option"),
    ],
)
def test_it_is_exit_code_2_before_anything_is_started(
    tmp_path: Path, arguments: list[str], variables: dict[str, str], message: str
) -> None:
    done = run(tmp_path, *arguments, **variables)
    assert (2, "", False) == (done.returncode, done.stdout, (tmp_path / "started").exists())
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_that_is_no_program_is_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("#!/no/such/interpreter\n")
    (tmp_path / "broken").chmod(0o755)
    done = run(tmp_path, "--capture-dir", "d", "--", "./broken")
    assert (2, "./broken cannot be run: No such file or directory") == (
        done.returncode,
        done.stderr.splitlines()[-1].removeprefix("otel-gym run: "),
    )


# ---- beside the sitecustomize of others, and where otel-gym is not installed


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ("import sys; print('theirs', __name__, sys.modules[__name__].__file__)", "theirs sitecustomize {0}\n"),
        ("import no_such_module", ""),
        ("raise SystemError('theirs')", ""),
    ],
)
def test_the_sitecustomize_that_was_there_still_runs(tmp_path: Path, theirs: str, said: str) -> None:
    """Its errors are reported as Python reports them, and keep nobody from starting."""
    (tmp_path / "sitecustomize.py").write_text(theirs)
    python = [sys.executable, "-c", STATE]
    path = {"PYTHONPATH": os.pathsep.join([str(tmp_path), OURS])}
    done = run(tmp_path, "--capture-dir", "d", "--", *python, **path)
    without = subprocess.run(
        [sys.executable, "-c", "pass"], env={**path}, capture_output=True, text=True, timeout=60, check=True
    )
    # 'run' itself is started with it too, and says its own line.
    said = said.format(tmp_path / "sitecustomize.py")
    assert said * 2 + "True False False\n" == done.stdout
    assert without.stderr * 2 == "".join(
        line for line in done.stderr.splitlines(keepends=True) if not line.startswith("otel-gym: capture is on")
    )


@pytest.mark.parametrize(
    ("code", "warned"),
    [
        ("pass", False),
        ("import starlette.applications", True),
        ("import uvicorn.config", True),
        ("import uvicorn.config, starlette.applications", True),
    ],
)
def test_a_server_in_a_python_without_otel_gym_is_told_so(tmp_path: Path, code: str, warned: bool) -> None:
    venv.create(tmp_path / "other", symlinks=True)
    other = str(tmp_path / "other" / "bin" / "python")
    for package, module in (("starlette", "applications"), ("uvicorn", "config")):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
        (tmp_path / package / f"{module}.py").touch()
    command = f'PYTHONPATH="${{PYTHONPATH%%:*}}:{tmp_path}" {other} -c "{code}"'
    done = run(tmp_path, "--capture-dir", "d", "--", "sh", "-c", command)
    rest = done.stderr.partition("\n")[2]
    assert (0, warned, int(warned)) == (
        done.returncode,
        f"otel-gym cannot be imported by {other}" in rest,
        rest.count("\n"),
    )
