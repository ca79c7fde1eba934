"""Which attempt is to come, across kills: an attempt that was ever begun is never begun again.

A small file beside the output holds the highest attempt that was begun, written before that attempt begins.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from otel_gym_jsonl.files import sync_directory


class Attempts:
    """The counter of one output file.

    Args:
        output: the file of rows.
    """

    def __init__(self, output: Path) -> None:
        self.path = output.with_name(f".{output.name}.collect.json")
        self._highest = self._read()

    @property
    def highest(self) -> int:
        """The highest attempt that was begun, -1 where none was."""
        return self._highest

    def begin(self, attempt: int) -> None:
        """Note, durably, that rollouts of this attempt begin.

        Raises:
            OSError: it cannot be noted.
        """
        if attempt <= self._highest:
            return
        beside = self.path.with_name(f"{self.path.name}.new")
        with beside.open("wb") as file:
            file.write(json.dumps({"highest_attempt": attempt}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)
        sync_directory(self.path.parent)
        self._highest = attempt

    def forget(self) -> None:
        """A collection begins from nothing."""
        self.path.unlink(missing_ok=True)
        self._highest = -1

    def _read(self) -> int:
        try:
            highest = json.loads(self.path.read_bytes())["highest_attempt"]
        except (OSError, ValueError, KeyError, TypeError):
            return -1
        return highest if type(highest) is int else -1
