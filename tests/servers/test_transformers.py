"""`transformers serve`, unmodified, with a tiny random model: it serves two of the three dialects."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from tests.servers.asking import ASK, ROOT, SECONDS_TO_START, outside, program, status
from tests.servers.processes import Served, listening, wait_until

pytestmark = [pytest.mark.servers, pytest.mark.transformers]


def make_model(directory: Path) -> str:
    """The tiny model's name: that of its directory."""
    script = str(ROOT / "tests" / "servers" / "make_tiny_model.py")
    subprocess.run([program("transformers", "python"), script, str(directory)], check=True, timeout=SECONDS_TO_START)
    return str(directory)


@contextlib.contextmanager
def transformers(directory: Path, model: str, launcher: Sequence[str] = ()) -> Iterator[int]:
    """The server's port, once it is up; its log is `server.log` in the directory."""
    command = [program("transformers", "transformers"), "serve", model, "--host", "127.0.0.1", "--port", "{port}"]
    command += ["--device", "cpu", "--dtype", "bfloat16"]
    with listening(command, directory / "server.log", outside(), launcher, SECONDS_TO_START) as port:

        def is_up() -> bool:
            return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200

        wait_until(is_up, SECONDS_TO_START)
        yield port


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def server(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("transformers")
    launcher = [program("transformers", "otel-gym"), "run", "--capture-dir", str(directory / "captures"), "--"]
    with transformers(directory, model, launcher) as port:
        yield Served({"transformers": port}, directory / "captures")
    assert 1 == (directory / "server.log").read_text(errors="replace").count("otel-gym: ")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_a_call_leaves_its_record(server: Served, model: str, rollout_id: str, dialect: str, streamed: bool) -> None:
    ASK[dialect](server.url("transformers", rollout_id), "none", model, streamed)
    record = server.wait_for_record(rollout_id)  # its chat streams have no terminal event that would wait for it
    assert (dialect, 200, model) == (record["dialect"], record["status_code"], record["request"]["model"])
    # By the format's rule a chat stream without [DONE] is truncated; nothing of it is lost.
    assert ("stream_truncated" if dialect == "chat" and streamed else None) == record["error_category"]
    assert record["response"]["choices" if dialect == "chat" else "output"]


def test_where_no_stream_is_asked_for_its_responses_are_one(server: Served, model: str, rollout_id: str) -> None:
    """The content type of the answer decides, not the request."""
    url = server.url("transformers", rollout_id)
    assert 200 == status(url, "responses", model=model, input="hi", max_output_tokens=8)
    [record] = server.records(rollout_id)
    assert (None, "stream" in record["request"], "response_raw" in record) == (record["error_category"], False, True)


def test_what_it_refuses_or_does_not_know_is_recorded_too(server: Served, model: str, rollout_id: str) -> None:
    url = server.url("transformers", rollout_id)
    assert 422 == status(url, "chat", model=model, messages=[], no_such_field=1)
    assert 404 == status(url, "messages", model=model, messages=[], max_tokens=8)
    wait_until(lambda: len(server.records(rollout_id)) == 2)  # its middleware ends an answer after its last byte
    assert [(422, "client_error"), (404, "not_found")] == [
        (record["status_code"], record["error_category"]) for record in server.records(rollout_id)
    ]
