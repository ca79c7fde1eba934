"""LiteLLM's proxy, unmodified, in front of the example model server."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from tests.servers.asking import ASK, SECONDS_TO_START, outside, program, status
from tests.servers.processes import Served, listening, wait_until

pytestmark = [pytest.mark.servers, pytest.mark.litellm]

KEY = "sk-secret"
RUN = "otel-gym run --capture-dir {captures} --"
LAUNCHERS = {
    "opentelemetry-instrument, uvicorn": ("opentelemetry-instrument --", []),
    "otel-gym run, gunicorn, 2 workers": (RUN, ["--run_gunicorn", "--num_workers", "2"]),
}


def config(upstream: int) -> str:
    """Two models of the example server, by OpenAI's and by Anthropic's API, and one that LiteLLM makes up."""
    models = {
        "scripted": {"model": "openai/scripted-1", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "none"},
        "claude": {"model": "anthropic/scripted-1", "api_base": f"http://127.0.0.1:{upstream}", "api_key": "none"},
        "mocked": {"model": "openai/mocked", "api_key": "none", "mock_response": "made up"},
    }
    listed = [{"model_name": name, "litellm_params": parameters} for name, parameters in models.items()]
    # JSON is YAML.
    return json.dumps({"model_list": listed, "general_settings": {"master_key": KEY}})


@contextlib.contextmanager
def proxying(
    directory: Path, upstream: int, launcher: Sequence[str] = (), options: Sequence[str] = (), **variables: str
) -> Iterator[int]:
    """The proxy's port, once it is up; its log is `server.log` in the directory."""
    (directory / "config.yaml").write_text(config(upstream))
    command = [program("litellm", "litellm"), "--config", str(directory / "config.yaml")]
    command += ["--host", "127.0.0.1", "--port", "{port}", *options]
    variables = outside(LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_TELEMETRY="False", **variables)
    with listening(command, directory / "server.log", variables, launcher, SECONDS_TO_START) as port:

        def is_up() -> bool:
            return httpx.get(f"http://127.0.0.1:{port}/health/liveliness", trust_env=False).status_code == 200

        wait_until(is_up, SECONDS_TO_START)
        yield port


@pytest.fixture(scope="module", params=LAUNCHERS)
def proxy(request: pytest.FixtureRequest, served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("litellm")
    before, options = LAUNCHERS[request.param]
    launcher = before.format(captures=directory / "captures").split()
    launcher[0] = program("litellm", launcher[0])
    variables: dict[str, str] = {}
    if before != RUN:
        exporters = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}
        variables = {"OTEL_GYM_MODEL_CALL_CAPTURE_DIR": str(directory / "captures"), **exporters}
    with proxying(directory, served.ports["h11-sdk"], launcher, options, **variables) as port:
        yield Served({"litellm": port}, directory / "captures")
    assert int(before == RUN) == (directory / "server.log").read_text(errors="replace").count("otel-gym: ")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("dialect", "model"),
    [("chat", "scripted"), ("messages", "claude"), ("messages", "scripted"), ("responses", "scripted")],
)
def test_a_call_leaves_its_record(proxy: Served, rollout_id: str, dialect: str, model: str, streamed: bool) -> None:
    ASK[dialect](proxy.url("litellm", rollout_id), KEY, model, streamed)
    [record] = proxy.records(rollout_id)
    assert (dialect, 200, None) == (record["dialect"], record["status_code"], record["error_category"])
    assert (model, streamed) == (record["request"]["model"], record["request"].get("stream", False))
    assert record["response"]["output" if dialect == "responses" else "choices" if dialect == "chat" else "content"]


@pytest.mark.parametrize("dialect", ASK)
def test_without_a_key_it_is_refused(proxy: Served, rollout_id: str, dialect: str) -> None:
    assert 401 == status(proxy.url("litellm", rollout_id), dialect, model="scripted")
    [record] = proxy.records(rollout_id)
    assert (401, "auth") == (record["status_code"], record["error_category"])


def test_its_odd_answers_are_recorded_as_they_are(proxy: Served, rollout_id: str) -> None:
    """A stream with status 500, plain JSON where a stream was asked for, a model that there is not."""
    url, key = proxy.url("litellm", rollout_id), {"Authorization": f"Bearer {KEY}"}
    asked = {"model": "mocked", "stream": True, "max_tokens": 8}
    hi = [{"role": "user", "content": "hi"}]
    assert 500 == status(url, "responses", key, **asked, input="hi")
    assert 200 == status(url, "messages", key, **asked, messages=hi)
    assert 400 == status(url, "chat", key, model="no-such-model", messages=hi)
    failed, plain, unknown = proxy.records(rollout_id)
    assert (500, "upstream_error") == (failed["status_code"], failed["error_category"])
    assert (None, "made up") == (plain["error_category"], plain["response"]["content"][0]["text"])
    assert (400, "client_error") == (unknown["status_code"], unknown["error_category"])
