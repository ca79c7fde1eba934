"""What can go wrong with capture files, as one tree.

    OtelGymError                    everything that this project raises on purpose
    ├── InvalidRolloutIdError       (ValueError) an id that may not become a file name
    ├── DamagedRecordError          (ValueError) a line of a capture file is no record
    └── CaptureWriteError           (OSError) a record could not be made durable

The base stands here, on the lowest floor, so that the capture format is useful without the rest;
`otel_gym.errors` offers the same class and adds its own below it.
"""

from __future__ import annotations

from pathlib import Path


class OtelGymError(Exception):
    """Base of every error that this project raises on purpose."""


class InvalidRolloutIdError(OtelGymError, ValueError):
    """A rollout id that may not become the name of a file.

    Attributes:
        rollout_id: what was given.
    """

    def __init__(self, rollout_id: object) -> None:
        super().__init__(rollout_id)
        self.rollout_id = rollout_id

    def __str__(self) -> str:
        return (
            f"rollout id {self.rollout_id!r} cannot name a capture file: use letters, digits, '.', '_' and '-' only, "
            "a letter or digit first, short enough for a file name of 255 bytes"
        )


class DamagedRecordError(OtelGymError, ValueError):
    """A line of a capture file that is no record.

    Attributes:
        path: the capture file.
        line_number: the line, counted from 1.
        reason: what the decoder said.
    """

    def __init__(self, path: Path, line_number: int, reason: str) -> None:
        super().__init__(path, line_number, reason)
        self.path = path
        self.line_number = line_number
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.path}, line {self.line_number} is no capture record ({self.reason}); "
            "read what is left with read_available(), or look at it with 'otel-gym verify'"
        )


class CaptureWriteError(OtelGymError, OSError):
    """A record could not be made durable; its rollout is marked incomplete.

    Attributes:
        rollout_id: the rollout whose record was lost.
        reason: what the system said.
    """

    def __init__(self, rollout_id: str, reason: str) -> None:
        super().__init__(rollout_id, reason)
        self.rollout_id = rollout_id
        self.reason = reason

    def __str__(self) -> str:
        return f"a record of rollout {self.rollout_id!r} could not be written: {self.reason}"
