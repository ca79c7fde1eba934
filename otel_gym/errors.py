"""All errors of this project, as one tree.

    OtelGymError                    everything that this project raises on purpose
    ├── InvalidRolloutIdError       (ValueError) an id that may not become a file name
    ├── DamagedRecordError          (ValueError) a line of a capture file is no record
    ├── CaptureWriteError           (OSError) a record could not be made durable
    ├── SettingsError               (ValueError) a setting that cannot be used
    ├── UnknownModelServerError     (ValueError) a name that the setting model_servers does not have
    └── MissingExtraError           (ImportError) an optional library is not installed

The first three belong to the capture format (`otel_gym_jsonl.errors`), which works without the rest.
"""

from __future__ import annotations

import json

from otel_gym_jsonl.errors import CaptureWriteError, DamagedRecordError, InvalidRolloutIdError, OtelGymError

__all__ = [
    "CaptureWriteError",
    "DamagedRecordError",
    "InvalidRolloutIdError",
    "MissingExtraError",
    "OtelGymError",
    "SettingsError",
    "UnknownModelServerError",
]


class SettingsError(OtelGymError, ValueError):
    """A setting that cannot be used: the message says what was got, what is allowed and what to do."""


class UnknownModelServerError(OtelGymError, ValueError):
    """A name that the setting `model_servers` does not have.

    Attributes:
        name: what was asked for.
        known: the names that there are.
    """

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(name, known)
        self.name = name
        self.known = known

    def __str__(self) -> str:
        known = ", ".join(map(repr, self.known)) or "none"
        return (
            f"there is no model server {self.name!r}; known: {known}. Name its base URL in OTEL_GYM_MODEL_SERVERS, "
            f'such as {{{json.dumps(self.name)}: "http://host:8000"}}'
        )


class MissingExtraError(OtelGymError, ImportError):
    """A part of otel-gym needs a library that is not installed.

    Attributes:
        what: the part that needs it.
        extra: the extra of otel-gym that brings it.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(what, extra)
        self.what = what
        self.extra = extra

    def __str__(self) -> str:
        return f"{self.what} needs an optional library: pip install 'otel-gym[{self.extra}]'"
