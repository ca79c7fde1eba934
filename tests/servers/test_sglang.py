"""SGLang's application and authentication with our plugin, as far as they go without a GPU.

It takes 9.5 GB, so no target installs it: `python3.12 -m venv .services/sglang`, then with `uv pip install --python
.services/sglang/bin/python`: `sglang==0.5.23` and `-e .`.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from otel_gym_jsonl import CaptureStore
from tests.servers.asking import ROOT, outside, program

pytestmark = [pytest.mark.servers, pytest.mark.sglang, pytest.mark.platform_only]


def test_its_plugin_captures_outside_its_authentication(tmp_path: Path) -> None:
    done = subprocess.run(
        [program("sglang", "python"), str(ROOT / "tests" / "servers" / "drive_sglang.py")],
        env={**os.environ, **outside(OTEL_GYM_MODEL_CALL_CAPTURE_DIR=str(tmp_path))},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert 0 == done.returncode, done.stderr
    assert {"found": True, "status": 401, "provider": "sglang"} == json.loads(done.stdout.splitlines()[-1])
    [record] = CaptureStore(tmp_path).read("0-0")
    assert (401, "auth") == (record["status_code"], record["error_category"])
