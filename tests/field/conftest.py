from __future__ import annotations

from pathlib import Path

import pytest

from tests.field.capture import Capture


@pytest.fixture
def capture(tmp_path: Path) -> Capture:
    return Capture(tmp_path / "captures")
