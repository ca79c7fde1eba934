"""The agent's server of `tests.collect.agent`, and a file of tasks."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.servers.processes import listening

_directories = itertools.count()


@dataclass(frozen=True)
class AgentServer:
    """One that runs: its URL, and the file in which it writes down what it gets."""

    url: str
    log: Path

    def posted(self) -> list[dict[str, Any]]:
        """The rows that it got, in order."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentServer]:
    log = tmp_path / "agent.posts"
    command = ["uvicorn", "tests.collect.agent:app", "--port", "{port}", "--log-level", "critical"]
    with listening(command, tmp_path / "agent.log", {"AGENT_LOG": str(log)}) as port:
        yield AgentServer(f"http://127.0.0.1:{port}", log)


Write = Callable[..., Path]


@pytest.fixture
def tasks(tmp_path: Path) -> Write:
    """Writes rows into a file of tasks; text is a line as it stands."""

    def write(*rows: dict[str, Any] | str) -> Path:
        path = tmp_path / f"tasks-{next(_directories)}.jsonl"
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return path

    return write


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a whole output."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def pairs_of(path: Path) -> list[tuple[int, int]]:
    """Their pairs, sorted."""
    return sorted((row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows_of(path))
