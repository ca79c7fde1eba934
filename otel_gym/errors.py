"""All errors of this project, as one tree.

    OtelGymError                    everything that this project raises on purpose
    ├── InvalidRolloutIdError       (ValueError) an id that may not become a file name
    ├── DamagedRecordError          (ValueError) a line of a capture file is no record
    ├── CaptureWriteError           (OSError) a record could not be made durable
    ├── SettingsError               (ValueError) a setting that cannot be used
    ├── UnknownModelServerError     (ValueError) a name that the setting model_servers does not have
    ├── CaptureError                a worker's token capture is misused: a second completion, a contradiction
    │   └── StreamingUnsupportedError   a stream has no exact tokens to stage
    ├── ConversionError             (ValueError) an answer or a request that another dialect cannot say
    ├── DamagedStagingError         (ValueError) a staged call's folder is not what was written
    └── MissingExtraError           (ImportError) an optional library is not installed

How a request of the gateway may end is drawn in `otel_gym.gateway.failures`.

The first three belong to the capture format (`otel_gym_jsonl.errors`), which works without the rest.
"""

from __future__ import annotations

import json
from pathlib import Path

from otel_gym_jsonl.errors import CaptureWriteError, DamagedRecordError, InvalidRolloutIdError, OtelGymError

__all__ = [
    "CaptureError",
    "CaptureWriteError",
    "ConversionError",
    "DamagedRecordError",
    "InvalidRolloutIdError",
    "MissingExtraError",
    "OtelGymError",
    "SettingsError",
    "StreamingUnsupportedError",
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


class CaptureError(OtelGymError):
    """A worker's token capture is misused: a call completed twice, a prefix that contradicts its admission."""


class StreamingUnsupportedError(CaptureError):
    """A worker that stages tokens was asked for a stream: only a whole answer has exact tokens."""


class ConversionError(OtelGymError, ValueError):
    """An answer or a request of one dialect that cannot be said in another without loss."""


class DamagedStagingError(OtelGymError, ValueError):
    """A folder of staged tokens that is not what a sink wrote.

    Attributes:
        folder: of the call.
        reason: what is wrong with it.
    """

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(folder, reason)
        self.folder = folder
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.folder} is no whole staged call ({self.reason}): its rollout cannot be trained on"


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
