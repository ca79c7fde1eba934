"""A collection from its beginning to its end: locks, what stands in the output, dispatch, signals, tidying."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_gym.collect import unsent
from otel_gym.collect.agent import MAX_RESULT_BYTES, Agent
from otel_gym.collect.attempts import Attempts
from otel_gym.collect.claims import claim_of
from otel_gym.collect.directory_lock import DirectoryLock
from otel_gym.collect.dispatch import Dispatch, Witness
from otel_gym.collect.errors import NotEmptyError
from otel_gym.collect.row_file import RowFile
from otel_gym.collect.row_writer import RowWriter
from otel_gym.collect.standing import Standing
from otel_gym.collect.tally import Tally
from otel_gym.collect.tasks import runs, task_lines
from otel_gym.collecting import FRESH_SECONDS
from otel_gym.notices import DELAY_SECONDS

GRACE_S = 30.0
"""How long an interrupted collection waits for the rollouts that run."""

TOLD_AFTER_S = 2 * DELAY_SECONDS
"""How long a collection waits at its end, so that model servers have told of all calls without a rollout."""

_COUNTED_S = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be collected.

    Attributes:
        agent: base URL of the agent's server.
        input: JSONL, one task a line.
        output: JSONL, one rollout a line.
        limit: so many tasks at most.
        repeats: rollouts of each task.
        concurrency: rollouts at a time.
        resume: go on with what stands in the output.
        retries: tries beyond the first.
        timeout_s: seconds that one try may take; None: as long as it wants.
        capture_dirs: every directory that model servers write to; none: nothing is attached.
        max_result_bytes: a longer result is not read to its end.
        grace_s: how long an interruption waits for the rollouts that run.
    """

    agent: str
    input: Path
    output: Path
    limit: int | None = None
    repeats: int = 1
    concurrency: int = 64
    resume: bool = False
    retries: int = 2
    timeout_s: float | None = None
    capture_dirs: Sequence[Path] = ()
    max_result_bytes: int = MAX_RESULT_BYTES
    grace_s: float = GRACE_S


class Collection:
    """One collection.

    Args:
        plan: what is wanted.
        witness: told of each rollout.

    Attributes:
        tally: counts up as rows are written; read it from any task of the same event loop.
    """

    def __init__(self, plan: Plan, witness: Witness | None = None) -> None:
        self.plan = plan
        self.tally = Tally()
        self._witness = witness

    async def run(self) -> Tally:
        """Collect. SIGINT and SIGTERM end it in order, a second one at once; both leave a file that can be resumed.

        Raises:
            BusyError: another collection uses the output or a capture directory.
            NotEmptyError: the output has rows, and `resume` is not set.
            MissingExtraError: httpx is not installed.
            SettingsError: the agent's URL is none.
            OSError: a file cannot be read or written. Rows that had been written stay.
        """
        plan = self.plan
        agent = Agent(plan.agent, plan.output.parent, plan.timeout_s, plan.max_result_bytes)
        with contextlib.ExitStack() as held:
            file = held.enter_context(contextlib.closing(RowFile(plan.output)))
            attempts = Attempts(plan.output)
            standing = await asyncio.to_thread(self._look, file, attempts)
            first = 1 + max(standing.highest_attempt, attempts.highest) if plan.resume else 0
            directories = await asyncio.to_thread(self._take_directories, held, standing)
            if directories:  # until then a model server may think that nobody will send the roots
                await asyncio.sleep(1.5 * FRESH_SECONDS)
            if (witness := self._witness) is not None:
                await asyncio.to_thread(witness.resume, plan.output, _rows_of(file), plan.capture_dirs)
            async with agent:
                writer = RowWriter(file)
                dispatch = Dispatch(
                    agent,
                    runs(plan.input, plan.limit, plan.repeats),
                    standing,
                    writer,
                    attempts,
                    first,
                    self.tally,
                    capture_dirs=plan.capture_dirs,
                    concurrency=plan.concurrency,
                    retries=plan.retries,
                    grace_s=plan.grace_s,
                    witness=witness,
                )
                counting = asyncio.create_task(self._count(directories))
                try:
                    with _interruptible(dispatch):
                        await dispatch.run()
                finally:
                    await writer.close()
                    await _ended(counting)
                    if witness is not None:
                        await asyncio.to_thread(witness.close)
            await self._last_count(directories)
            if not dispatch.exhausted:
                self.tally.earlier = len(standing.finished)
            if standing.superseded and not self.tally.interrupted:
                await asyncio.to_thread(file.drop, standing.superseded)
        return self.tally

    def _look(self, file: RowFile, attempts: Attempts) -> Standing:
        if not self.plan.resume:
            if file.size:
                raise NotEmptyError(
                    f"{self.plan.output}: there are rows in it already; say --resume to go on with them, or name "
                    "another output"
                )
            attempts.forget()
            unsent.forget(self.plan.output)
        self.tally.torn = file.repair()
        standing = Standing(file)
        self.tally.damaged = standing.damaged
        return standing

    def _take_directories(self, held: contextlib.ExitStack, standing: Standing) -> list[DirectoryLock]:
        plan = self.plan
        if not plan.capture_dirs:
            return []
        claim, tasks = claim_of(plan.input, plan.limit, plan.repeats, standing.finished)
        self.tally.wanted = plan.repeats * tasks
        taken = []
        for directory in plan.capture_dirs:
            taken.append(DirectoryLock(directory, plan.output, claim))
            held.callback(taken[-1].release)
        return taken

    async def _count(self, directories: Sequence[DirectoryLock]) -> None:
        """What is wanted, once; and now and then the calls that have no rollout, until this is cancelled."""
        await asyncio.to_thread(self._count_tasks)
        while directories:
            await asyncio.sleep(_COUNTED_S)
            await asyncio.to_thread(self._count_unattributed, directories)

    async def _last_count(self, directories: Sequence[DirectoryLock]) -> None:
        if self.tally.wanted is None:
            await asyncio.to_thread(self._count_tasks)
        if directories:
            await asyncio.sleep(TOLD_AFTER_S)
            await asyncio.to_thread(self._count_unattributed, directories)

    def _count_tasks(self) -> None:
        if self.tally.wanted is None:
            self.tally.wanted = self.plan.repeats * sum(1 for _ in task_lines(self.plan.input, self.plan.limit))

    def _count_unattributed(self, directories: Sequence[DirectoryLock]) -> None:
        total = Counter[str]()
        for directory in directories:
            try:
                total.update(directory.unattributed())
            except OSError as error:  # it was taken away: the rollouts go on
                _log.warning("%s cannot be read: %s", directory.path, error.strerror or error)
        self.tally.unattributed = total


def _rows_of(file: RowFile) -> Iterator[dict[str, Any]]:
    return (row for _, row in file.rows() if row is not None)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@contextlib.contextmanager
def _interruptible(dispatch: Dispatch) -> Iterator[None]:
    """Signals interrupt the dispatch while the block runs, where this is the main thread."""
    loop = asyncio.get_running_loop()
    set_here = []
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(ValueError, RuntimeError):  # on another thread signals are somebody else's
            loop.add_signal_handler(number, dispatch.interrupt)
            set_here.append(number)
    try:
        yield
    finally:
        for number in set_here:
            loop.remove_signal_handler(number)
