"""The CPU build of vLLM, unmodified, with a tiny random model: `make test-vllm`, ten minutes, not in CI (6 GB)."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.servers.asking import ASK, ROOT, outside, program, status
from tests.servers.processes import Served, listening, wait_until
from tests.servers.wire import connected, until
from tests.services.receiver import Receiver, http_receiver, plain

pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("vllm"), pytest.mark.timeout(900)]

KEY = "secret"
SECONDS_TO_START = 600.0
SECONDS_OF_PATIENCE = 8.0
SMALL = ["--max-model-len", "2048", "--max-num-seqs", "8", "--enforce-eager", "--gpu-memory-utilization", "0.2"]
TWO = ["--api-server-count", "2"]
WAYS = {
    "nothing but the environment, traced by vLLM itself": ["--otlp-traces-endpoint", "{traces}"],
    "nothing but the environment, two API servers": TWO,
    "--middleware, two API servers": ["--middleware", "otel_gym.CaptureMiddleware", *TWO],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    script = str(ROOT / "tests" / "servers" / "make_tiny_model.py")
    subprocess.run([program("vllm", "python"), script, str(directory)], check=True, timeout=300)
    return directory


@contextlib.contextmanager
def vllm(model: Path, directory: Path, options: Sequence[str], **more: str) -> Iterator[Served]:
    """vLLM, up, until the context ends: it is told so by SIGTERM."""
    command = [program("vllm", "vllm"), "serve", str(model), "--served-model-name", "tiny", *SMALL]
    command += ["--host", "127.0.0.1", "--port", "{port}", "--api-key", KEY, *options]
    variables = outside(OTEL_GYM_MODEL_CALL_CAPTURE_DIR=str(directory / "captures"), **more)
    with listening(command, directory / "server.log", variables, seconds=SECONDS_TO_START) as port:

        def is_up() -> bool:
            return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200

        wait_until(is_up, SECONDS_TO_START)
        yield Served({"vllm": port}, directory / "captures")


class Watched(Served):
    """A server, and a receiver of its spans; `traced`: vLLM traces its requests there too."""

    def __init__(self, served: Served, receiver: Receiver, *, traced: bool) -> None:
        super().__init__(served.ports, served.store.directory)
        self.receiver = receiver
        self.traced = traced

    def span(self, wanted: Callable[[Span], bool]) -> Span:
        """The only one that is so, once it is there."""
        wait_until(lambda: any(map(wanted, self.receiver.spans)))
        [span] = filter(wanted, self.receiver.spans)
        return span


@pytest.fixture(scope="module", params=WAYS)
def server(request: pytest.FixtureRequest, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with http_receiver() as receiver:
        options = [part.format(traces=f"{receiver.endpoint}/v1/traces") for part in WAYS[request.param]]
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",  # what vLLM looks at
            "OTEL_SERVICE_NAME": "policy",
        }
        with vllm(model, tmp_path_factory.mktemp("vllm"), options, **variables) as served:
            yield Watched(served, receiver, traced="{traces}" in WAYS[request.param])


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("dialect", ASK)
def test_a_call_leaves_its_record(server: Served, rollout_id: str, dialect: str, streamed: bool) -> None:
    ASK[dialect](server.url("vllm", rollout_id), KEY, "tiny", streamed)
    [record] = server.records(rollout_id)
    assert (dialect, 200, "tiny") == (record["dialect"], record["status_code"], record["request"]["model"])
    # A Responses stream that max_output_tokens cuts ends with response.completed, whose status is incomplete.
    assert record["error_category"] is None
    assert record["response"]["output" if dialect == "responses" else "choices" if dialect == "chat" else "content"]


def test_its_span_names_the_server_and_the_engines_own_span_is_below_it(server: Watched, rollout_id: str) -> None:
    """vLLM reads the request's `traceparent`, which is ours; spans go through its provider where it has one."""
    ASK["chat"](server.url("vllm", rollout_id), KEY, "tiny", False)
    [record] = server.records(rollout_id)
    call = server.span(lambda span: span.span_id.hex() == record["model_call_id"][:16])
    attributes = plain(call.attributes)
    assert ("chat tiny", "vllm", rollout_id, True) == (
        call.name,
        attributes["gen_ai.provider.name"],
        attributes["nemo.gym.rollout.id"],
        attributes["otel_gym.record.durable"],
    )
    if server.traced:
        request = server.span(lambda span: span.parent_span_id == call.span_id)
        assert ("llm_request", call.trace_id) == (request.name, request.trace_id)


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


@pytest.mark.parametrize("options", [[], TWO], ids=["one API server", "two API servers"])
def test_a_sigterm_in_mid_stream_costs_no_call_whose_end_was_seen(
    model: Path, tmp_path: Path, options: list[str]
) -> None:
    """One API server ends its streams, in one of two ways, or waits for its clients: each way leaves a record.

    Two are killed by vLLM at once: the stream stops for its client without an end, a call whose end nobody has seen.
    """
    body = b'{"model": "tiny", "stream": true, "max_tokens": 2000, "ignore_eos": true, "messages": '
    body += b'[{"role": "user", "content": "hi"}]}'
    head = "POST /ng-rollout/cut/v1/chat/completions HTTP/1.1\r\nHost: m\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    seen: list[bytes] = []
    with contextlib.ExitStack() as client:
        with vllm(model, tmp_path, options) as served:
            for number in range(4):  # more than one process has some
                ASK["chat"](served.url("vllm", f"whole-{number}"), KEY, "tiny", True)
            connection = client.enter_context(connected(served.ports["vllm"]))
            connection.sendall(head.encode() + body)
            seen.append(until(connection, b"data: "))
            reader = threading.Thread(target=read_until_silence, args=(connection, seen))
            reader.start()
        reader.join()
    calls = {rollout_id: served.records(rollout_id) for rollout_id in served.store.rollout_ids()}
    cut = [end_of(record) for record in calls.pop("cut", [])]
    told = b"[DONE]" in b"".join(seen)
    if options:
        assert (False, []) == (told, cut)
    else:
        assert (told, cut) in (
            (True, [(None, "abort")]),
            (True, [("upstream_error", None)]),
            (False, [("cancelled", None)]),
        )
    assert [[(None, "length")]] * 4 == [[end_of(record) for record in records] for records in calls.values()]
    assert [] == list(served.store.directory.glob("*.incomplete"))


def read_until_silence(connection: socket.socket, seen: list[bytes]) -> None:
    """As a client reads that loses its patience, and hangs up."""
    connection.settimeout(SECONDS_OF_PATIENCE)
    with contextlib.suppress(OSError):
        while piece := connection.recv(1 << 16):
            seen.append(piece)
    connection.close()


def end_of(record: dict[str, Any]) -> tuple[str | None, str | None]:
    """How a chat call went, and why its answer stopped."""
    return record["error_category"], record["response"]["choices"][0]["finish_reason"]
