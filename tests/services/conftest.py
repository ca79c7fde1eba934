"""The services, each started when the first test asks for it and ended with the run; one for each test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.build_services import COLLECTOR, JAEGER, Service
from tests.services import phoenix as phoenix_service
from tests.services.collector import Collector, collector_running
from tests.services.jaeger import Jaeger, jaeger_running
from tests.services.phoenix import Phoenix, phoenix_running


def _must_be_built(service: Service) -> None:
    """Leave the test out when the service is missing or older than its files; with CI=true that fails the test."""
    if not service.is_built():
        pytest.skip(f"{service.name} is not built: make services ({service.patience})")


@pytest.fixture(scope="session")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """A Jaeger that all tests of this process share: each looks for trace ids or service names of its own."""
    _must_be_built(JAEGER)
    with jaeger_running(tmp_path_factory.mktemp("jaeger")) as running:
        yield running


@pytest.fixture(scope="session")
def collector(tmp_path_factory: pytest.TempPathFactory, jaeger: Jaeger) -> Iterator[Collector]:
    """A Collector with default limits that hands on to the shared Jaeger."""
    _must_be_built(COLLECTOR)
    with collector_running(tmp_path_factory.mktemp("collector"), forward_to=jaeger.otlp_grpc) as running:
        yield running


@pytest.fixture(scope="session")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phoenix]:
    """A Phoenix that all tests of this process share."""
    if not phoenix_service.PROGRAM.exists():
        pytest.skip("Phoenix is not installed: make phoenix (about 90 seconds, 850 MB)")
    with phoenix_running(tmp_path_factory.mktemp("phoenix")) as running:
        yield running
