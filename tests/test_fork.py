from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

# The module that SDK providers need in a forked child, brought in late by somebody, as `run_in_executor` does.
FORKING = """
import os, sys
from otel_gym.provider import Pipeline
from otel_gym.settings import Settings
pipeline = Pipeline(Settings(observability_enabled=True, model_call_capture_dir=sys.argv[1]))
import concurrent.futures.thread
if not (child := os.fork()):
    os._exit(7)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_process_with_a_pipeline_can_fork_whatever_was_imported_after_it(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKING, str(tmp_path)]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            assert 7 == process.wait(timeout=30)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # its child too
