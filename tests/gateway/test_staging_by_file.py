"""The setting of the upstreams file, `token_id_capture.external_staging`, makes a gateway stage: real processes."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from otel_gym.gateway import StagingLog
from otel_gym_jsonl import CaptureStore
from tests.gateway.trained import STAGED_BY, worker_command
from tests.servers.processes import listening


@pytest.mark.servers
@pytest.mark.parametrize("staging", [True, False])
def test_the_file_decides_whether_a_streamed_call_is_staged(tmp_path: Path, staging: bool) -> None:
    variables = {"STAGING_DIRECTORY": str(tmp_path / "staged")}
    with listening(worker_command("{port}"), tmp_path / "worker.log", variables) as worker:
        (tmp_path / "upstreams.yaml").write_text(
            f"upstreams: [{{name: w, url: 'http://127.0.0.1:{worker}'}}]\n"
            f"token_id_capture: {{external_staging: {json.dumps(staging)}}}\nstaging_log: log\n"
        )
        command = ["otel_gym", "gateway", "--upstreams", str(tmp_path / "upstreams.yaml"), "--port", "{port}"]
        command += ["--capture-dir", str(tmp_path / "captures")]
        with listening(command, tmp_path / "gateway.log", {}) as port:
            answer = httpx.post(
                f"http://127.0.0.1:{port}{STAGED_BY.format('0-0')}/v1/chat/completions",
                json={"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]},
                timeout=30,
            )
    log = StagingLog(tmp_path / "log").read("0-0")
    [record] = CaptureStore(tmp_path / "captures").read("0-0")
    staged = [line["disposition"] for line in log]
    assert (["staged"] if staging else []) == staged
    assert answer.text.endswith("data: [DONE]\n\n") is staging  # the worker itself refuses to stream
    assert (200 if staging else answer.status_code) == record["status_code"]
