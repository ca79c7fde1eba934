"""A sink of whole folders that can be told to fail, to stall, or to be killed while it writes."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from typing import Any

from otel_gym.staging import DirectorySink, StagedCallRecord, StageResult


class ControlledSink(DirectorySink):
    """Does what it is told in `orders`, and stores the rest.

    Attributes:
        orders: `fail_every` n (each n-th call raises, or is refused, in turn), `stall_s`, `kill`.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.orders: dict[str, Any] = {}
        self._numbers = itertools.count(1)

    def stage(self, record: StagedCallRecord, **attachments: Any) -> StageResult:
        """Store one call, or not."""
        number, every = next(self._numbers), self.orders.get("fail_every", 0)
        time.sleep(self.orders.get("stall_s", 0.0))
        if self.orders.get("kill"):
            os._exit(137)
        if every and number % every == 0:
            if number // every % 2:
                raise OSError("the sink was told to fail")
            return StageResult(ok=False, error="the sink was told to refuse")
        return super().stage(record, **attachments)
