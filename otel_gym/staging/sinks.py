"""Where a worker's staged calls go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from otel_gym.staging.records import StagedCallRecord, StageResult


class StagingSink(Protocol):
    """Makes staged calls durable, wherever the training framework keeps them.

    `stage` may be called from many threads at once, and returns only when the record, and all its attachments with it,
    can be relied on. A sink of an older kind takes no `attachments`: it serves calls without media.
    """

    def stage(self, record: StagedCallRecord, *, attachments: Mapping[str, Any] | None = None) -> StageResult:
        """Store one call.

        Args:
            record: what to store; `otel_gym.staging.staging_key` names it where the sink has no key of its own.
            attachments: the framework's media (pixel tensors), opaque, in no digest. Every one of them is stored in
                the same write, or the call is rejected. Passed only where the worker gave some.

        Returns:
            `ok` with the staging key, or not ok with the reason; whatever else happens, or is raised, counts as a
            failed capture.
        """
        ...  # pragma: no cover
