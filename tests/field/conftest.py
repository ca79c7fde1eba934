from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.field.capture import Capture


@pytest.fixture
async def capture(tmp_path: Path) -> AsyncIterator[Capture]:
    capture = Capture(tmp_path / "captures")
    yield capture
    await capture.app(capture.nobody).aclose()
