"""The real command, `otel-gym collect`, as a child."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.collect.conftest import AgentServer

COMMAND = str(Path(sys.executable).parent / "otel-gym")


class Collecting:
    """One `otel-gym collect`, as often as it is started."""

    def __init__(self, agent: AgentServer, source: Path, output: Path, *more: str) -> None:
        self.output = output
        self.command = [
            COMMAND,
            "collect",
            "--agent",
            agent.url,
            "--input",
            str(source),
            "--output",
            str(output),
            *more,
        ]

    def start(self, *more: str) -> subprocess.Popen[str]:
        return subprocess.Popen([*self.command, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *more: str) -> tuple[int, str, str]:
        with self.start(*more) as process:
            out, errors = process.communicate(timeout=120)
            return process.returncode, out, errors

    @property
    def lines(self) -> list[bytes]:
        """The whole lines of the output."""
        if not self.output.exists():
            return []
        return [line for line in self.output.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
