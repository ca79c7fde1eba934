"""What holds for the whole suite: a clean environment, and no test that is silently left out where all must run."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.mirrored import Mirrored
    from tests.services.receiver import Receiver

# No test asserts a time, and a busy machine is no finding.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

# The user's own settings decide nothing here, nor in the servers that tests start.
for _name in [name for name in os.environ if name.startswith(("OTEL_", "NO_COLOR", "FORCE_COLOR"))]:
    del os.environ[_name]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """An OTLP receiver over HTTP."""
    from tests.services.receiver import http_receiver

    with http_receiver() as running:
        yield running


@pytest.fixture
def mirrored(tmp_path: Path, receiver: Receiver) -> Iterator[Mirrored]:
    """A captured application whose spans go to the receiver."""
    from tests.mirrored import Mirrored

    made = Mirrored(tmp_path / "model-calls", receiver)
    yield made
    made.close()


@pytest.fixture
def limits_read_anew() -> Iterator[None]:
    """For a test whose variables limit spans, as a process reads them once: before it, and after they are gone.

    To be named in `usefixtures`, so that it is there before `monkeypatch`.
    """
    from otel_gym_otlp.limits import standard_limits

    standard_limits.cache_clear()
    yield
    standard_limits.cache_clear()


_ALL_MUST_RUN = os.environ.get("CI") == "true"
_MISSING = "skipped, but with CI=true everything must be there: install what is missing, or mark the test platform_only"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With CI=true a skipped test fails, unless its marker says that the platform decides."""
    report = yield
    expected = hasattr(report, "wasxfail") or item.get_closest_marker("platform_only") is not None
    if _ALL_MUST_RUN and report.skipped and not expected:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: {_MISSING}\n{report.longreprtext}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that leaves itself out while it is collected."""
    report = yield
    if _ALL_MUST_RUN and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid}: {_MISSING}\n{report.longrepr}"
    return report
