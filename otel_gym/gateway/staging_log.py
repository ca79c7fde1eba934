"""What became of staged calls, on disk: a line for each, in `<directory>/<rollout_id>.staging.jsonl`.

    {"disposition": "staged", "rollout_id", "recorded_at", "call": {…}}      a row of the ledger, `CallRecord`
    {"disposition": "failed", "rollout_id", "recorded_at", "model_call_id", "reason"}

It is kept apart from the capture, and stands with capture off too. A line is fsynced before the client has its answer.
A failure without a call id is a call that went past the token capture. A rollout with a failure cannot be trained on as
it stands: tokens may have been spent that nobody staged.
"""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from otel_gym.errors import InvalidRolloutIdError, SettingsError
from otel_gym.staging import CallRecord
from otel_gym_jsonl.files import CaptureFile, is_rollout_id

logger = logging.getLogger(__name__)

SUFFIX: Final = ".staging.jsonl"
UNSTAGED_CALL: Final = "unstaged_call"
WRITE_SECONDS: Final = 30.0
"""How long an answer waits for its line; after that it goes."""


class StagingLog:
    """Writes the lines. A `TokenSink` too: it marks calls that went past the token capture.

    Args:
        directory: absolute; made when missing.

    Raises:
        SettingsError: it cannot be made or written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=directory):
                pass
        except OSError as error:
            raise SettingsError(
                f"staging log: got {str(directory)!r}, which cannot be used ({error.strerror}); allowed: a directory "
                "that this process can make and write; change its owner or mode, or name another"
            ) from None

    async def staged(self, rollout_id: str, call: CallRecord) -> None:
        """Record a call whose tokens are staged and whose answer can be given."""
        await self._record(rollout_id, {"disposition": "staged", "call": call.model_dump(mode="json")})

    async def failed(self, rollout_id: str, model_call_id: str, reason: str) -> None:
        """Record a call without staged tokens, or without an answer."""
        await self._record(rollout_id, {"disposition": "failed", "model_call_id": model_call_id, "reason": reason})

    async def mark_incomplete(self, rollout_id: str, call_id: str) -> None:
        """As a `TokenSink`: tokens may have been spent that nobody staged."""
        await self.failed(rollout_id, call_id, UNSTAGED_CALL)

    def read(self, rollout_id: str) -> list[dict[str, Any]]:
        """The lines of a rollout in their order, none when there is no file. Blocks.

        Raises:
            ValueError: a line is damaged, or the id can name no file.
        """
        if not is_rollout_id(rollout_id):
            raise InvalidRolloutIdError(rollout_id)
        try:
            text = (self.directory / f"{rollout_id}{SUFFIX}").read_bytes()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines() if line]

    async def _record(self, rollout_id: str, values: dict[str, Any]) -> None:
        """Append, whoever cancels meanwhile; what goes wrong is logged, the client has its answer all the same."""
        line = json.dumps({"rollout_id": rollout_id, "recorded_at": time.time(), **values}).encode("ascii") + b"\n"
        writing = asyncio.get_running_loop().run_in_executor(None, self._append, rollout_id, line)
        try:
            await asyncio.wait_for(asyncio.shield(writing), WRITE_SECONDS)
        except asyncio.TimeoutError:
            logger.error("otel-gym: the staging log of rollout %r takes longer than %g s", rollout_id, WRITE_SECONDS)
        except OSError:
            logger.exception("otel-gym: the staging log of rollout %r has lost a line", rollout_id)

    def _append(self, rollout_id: str, line: bytes) -> None:
        file = CaptureFile(self.directory, rollout_id, SUFFIX)
        try:
            file.lock()
            file.append(line)
        finally:
            file.close()
