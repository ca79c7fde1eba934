"""The CPU build of vLLM, unmodified, with a tiny random model: `make test-vllm`, ten minutes, not in CI (6 GB)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.servers.asking import ASK, ROOT, outside, program, status
from tests.servers.processes import Served, listening, wait_until
from tests.servers.wire import connected, until

pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("vllm"), pytest.mark.timeout(900)]

KEY = "secret"
SECONDS_TO_START = 600.0
SMALL = ["--max-model-len", "2048", "--max-num-seqs", "8", "--enforce-eager", "--gpu-memory-utilization", "0.2"]
WAYS = {
    "nothing but the environment": [],
    "--middleware, two API servers": ["--middleware", "otel_gym.CaptureMiddleware", "--api-server-count", "2"],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    script = str(ROOT / "tests" / "servers" / "make_tiny_model.py")
    subprocess.run([program("vllm", "python"), script, str(directory)], check=True, timeout=300)
    return directory


@pytest.fixture(scope="module", params=WAYS)
def server(request: pytest.FixtureRequest, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """It ends by SIGTERM while a stream runs; what it had acknowledged is whole, in both ways of ending."""
    directory = tmp_path_factory.mktemp("vllm")
    command = [program("vllm", "vllm"), "serve", str(model), "--served-model-name", "tiny", *SMALL]
    command += ["--host", "127.0.0.1", "--port", "{port}", "--api-key", KEY, *WAYS[request.param]]
    variables = outside(OTEL_GYM_MODEL_CALL_CAPTURE_DIR=str(directory / "captures"))
    with listening(command, directory / "server.log", variables, seconds=SECONDS_TO_START) as port:

        def is_up() -> bool:
            return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200

        wait_until(is_up, SECONDS_TO_START)
        served = Served({"vllm": port}, directory / "captures")
        yield served
        acknowledged = {rollout_id: len(served.records(rollout_id)) for rollout_id in served.store.rollout_ids()}
        with connected(port) as connection:
            body = b'{"model": "tiny", "stream": true, "max_tokens": 2000, "ignore_eos": true, "messages": '
            body += b'[{"role": "user", "content": "hi"}]}'
            head = "POST /ng-rollout/cut/v1/chat/completions HTTP/1.1\r\nHost: m\r\nContent-Type: application/json\r\n"
            head += f"Authorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            until(connection, b"data: ")
    after = {rollout_id: len(served.records(rollout_id)) for rollout_id in acknowledged}
    assert acknowledged == after
    assert all("cut" in path.name for path in (directory / "captures").glob("*.incomplete"))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("dialect", ASK)
def test_a_call_leaves_its_record(server: Served, rollout_id: str, dialect: str, streamed: bool) -> None:
    ASK[dialect](server.url("vllm", rollout_id), KEY, "tiny", streamed)
    [record] = server.records(rollout_id)
    assert (dialect, 200, "tiny") == (record["dialect"], record["status_code"], record["request"]["model"])
    # A Responses stream that max_output_tokens cuts ends with response.completed, whose status is incomplete.
    assert record["error_category"] is None
    assert record["response"]["output" if dialect == "responses" else "choices" if dialect == "chat" else "content"]


@pytest.mark.parametrize("dialect", ASK)
def test_without_a_key_it_is_refused(server: Served, rollout_id: str, dialect: str) -> None:
    assert 401 == status(server.url("vllm", rollout_id), dialect, model="tiny")
    [record] = server.records(rollout_id)
    assert (401, "auth") == (record["status_code"], record["error_category"])


def test_a_redirect_stays_in_the_rollout(server: Served, rollout_id: str) -> None:
    url = server.url("vllm", rollout_id)
    answer = httpx.get(f"{url}/v1/models/", headers={"Authorization": f"Bearer {KEY}"}, trust_env=False)
    assert (307, f"{url}/v1/models") == (answer.status_code, answer.headers["location"])


def test_calls_that_run_at_once_are_all_in_one_file(server: Served, rollout_id: str) -> None:
    url = server.url("vllm", rollout_id)
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(ASK[dialect], url, KEY, "tiny", True) for dialect in ASK for _ in range(8)]:
            done.result()
    records = server.records(rollout_id)
    assert (24, {None}) == (
        len({record["model_call_id"] for record in records}),
        {record["error_category"] for record in records},
    )
