from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.servers.processes import Served, serving

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Every kind of server, running; one process for each worker of the test run."""
    with serving(tmp_path_factory.mktemp("servers")) as running:
        yield running


@pytest.fixture
def rollout_id() -> str:
    """A rollout of the test's own."""
    return f"test-{next(NUMBERS)}"
