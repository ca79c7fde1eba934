from __future__ import annotations

import pytest

from otel_gym import exchange


@pytest.fixture(autouse=True)
def no_cut_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows a terminal event comes in time, however busy the machine; the field tests keep the real time."""
    monkeypatch.setattr(exchange, "LINGER_SECONDS", 60.0)
