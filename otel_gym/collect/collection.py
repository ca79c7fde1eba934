"""A collection from its beginning to its end: locks, what stands in the output, dispatch, signals, tidying."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from otel_gym.collect.agent import MAX_RESULT_BYTES, Agent
from otel_gym.collect.attempts import Attempts
from otel_gym.collect.directory_lock import DirectoryLock
from otel_gym.collect.dispatch import Dispatch, Witness
from otel_gym.collect.errors import NotEmptyError
from otel_gym.collect.row_file import RowFile
from otel_gym.collect.row_writer import RowWriter
from otel_gym.collect.standing import Standing
from otel_gym.collect.tally import Tally
from otel_gym.collect.tasks import runs
from otel_gym.collecting import FRESH_SECONDS

GRACE_S = 30.0
"""How long an interrupted collection waits for the rollouts that run."""

_BUFFER = 1 << 20


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
        agent = Agent(plan.agent, plan.timeout_s, plan.max_result_bytes)
        with contextlib.ExitStack() as held:
            file = held.enter_context(contextlib.closing(RowFile(plan.output)))
            attempts = Attempts(plan.output)
            standing = await asyncio.to_thread(self._look, file, attempts)
            first = 1 + max(standing.highest_attempt, attempts.highest) if plan.resume else 0
            holder = {"process": os.getpid(), "on": socket.gethostname(), "writes": str(plan.output.absolute())}
            for directory in plan.capture_dirs:
                held.callback(DirectoryLock(directory, holder).release)
            if plan.capture_dirs:  # until then a model server may think that nobody will send the roots
                await asyncio.sleep(1.5 * FRESH_SECONDS)
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
                    witness=self._witness,
                )
                counting = asyncio.create_task(self._count())
                try:
                    with _interruptible(dispatch):
                        await dispatch.run()
                        await counting
                finally:
                    counting.cancel()
                    await writer.close()
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
        self.tally.torn = file.repair()
        standing = Standing(file)
        self.tally.damaged = standing.damaged
        return standing

    async def _count(self) -> None:
        self.tally.wanted = self.plan.repeats * await asyncio.to_thread(_tasks_in, self.plan.input, self.plan.limit)


def _tasks_in(path: Path, limit: int | None) -> int:
    found = 0
    with path.open("rb", buffering=_BUFFER) as lines:
        for line in lines:
            if limit is not None and found >= limit:
                break
            found += not line.isspace()
    return found


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
