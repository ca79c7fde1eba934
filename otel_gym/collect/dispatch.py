"""Rows to the agent, so many at a time, each tried again where that makes sense; one failing stops no other."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

from otel_gym.collect.agent import Agent, Failure
from otel_gym.collect.answers import LargeAnswer
from otel_gym.collect.attempts import Attempts
from otel_gym.collect.result_row import ResultRow, bad_line_row, result_row
from otel_gym.collect.row_writer import RowWriter
from otel_gym.collect.standing import Standing
from otel_gym.collect.tally import Tally
from otel_gym.collect.tasks import BadLine, Run
from otel_gym.rollouts.ids import clear_rollouts

_AT_ONCE = 64  # lines of the input that one look into it takes
_INLINE_BYTES = 65_536  # a longer answer is put together off the event loop
_THREADS = 8
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_LONGEST_ASKED_PAUSE_S = 120.0

_T = TypeVar("_T")


class Witness(Protocol):
    """Who is told of each rollout, for traces: `headers` on the event loop, all else on threads.

    Times are in nanoseconds since the epoch.
    """

    def resume(self, output: Path, rows: Iterable[Mapping[str, Any]], capture_dirs: Sequence[Path]) -> None:
        """The output is locked, has these rows, and nothing has begun yet."""

    def headers(self, row: dict[str, Any]) -> dict[str, str]:
        """What the post of this row carries."""

    def begun(self, row: dict[str, Any], at_ns: int) -> None:
        """An attempt is about to be posted."""

    def ending(self, row: dict[str, Any], result: ResultRow, began_ns: int, ended_ns: int) -> None:
        """A rollout is over and its row about to be written; the times of its last try."""

    def ended(self, row: dict[str, Any], result: ResultRow, began_ns: int, ended_ns: int) -> None:
        """That row is durable."""

    def abandoned(self, row: dict[str, Any], failure: Failure, began_ns: int, ended_ns: int) -> None:
        """An attempt failed that the agent had begun, and another one follows."""

    def close(self) -> None:
        """Nothing comes any more."""


class Dispatch:
    """One run over the input.

    Args:
        agent: where rows go.
        wanted: the rollouts of the input, read on a thread.
        standing: what the output has already; finished pairs are passed over.
        writer: takes the rows.
        attempts: which attempts were ever begun.
        first_attempt: of this run.
        tally: counts.
        capture_dirs: cleared of the attempts that begin, and attached from.
        concurrency: rollouts at a time.
        retries: tries beyond the first.
        grace_s: how long a stop waits for the rollouts that run.
        witness: told of each rollout.
    """

    def __init__(
        self,
        agent: Agent,
        wanted: Iterator[Run | BadLine],
        standing: Standing,
        writer: RowWriter,
        attempts: Attempts,
        first_attempt: int,
        tally: Tally,
        *,
        capture_dirs: Sequence[Path] = (),
        concurrency: int = 64,
        retries: int = 2,
        grace_s: float = 30.0,
        witness: Witness | None = None,
    ) -> None:
        self._agent = agent
        self._wanted = wanted
        self._standing = standing
        self._writer = writer
        self._attempts = attempts
        self._first_attempt = first_attempt
        self._tally = tally
        self._capture_dirs = capture_dirs
        self._concurrency = concurrency
        self._retries = retries
        self._grace_s = grace_s
        self._witness = witness
        self._waiting: Iterator[Run | BadLine] = iter(())
        self._exhausted = False
        self._reading = asyncio.Lock()
        self._noting = asyncio.Lock()
        self._large = asyncio.Lock()
        self._stop = asyncio.Event()
        self._cancel = asyncio.Event()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="otel-gym-collect")

    def interrupt(self) -> None:
        """First: begin no rollout any more, and wait some time for those that run. Second: cancel them."""
        self._tally.interrupted = True
        if self._stop.is_set():
            self._cancel.set()
        self._stop.set()

    async def run(self) -> None:
        """Until the input is at its end, or an interruption.

        Raises:
            OSError: the input cannot be read, or the output not written.
        """
        workers = [asyncio.create_task(self._work()) for _ in range(self._concurrency)]
        ended = asyncio.create_task(asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION))
        signals = [asyncio.create_task(self._stop.wait()), asyncio.create_task(self._cancel.wait())]
        try:
            await asyncio.wait({ended, signals[0]}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await asyncio.wait({ended, signals[1]}, timeout=self._grace_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*workers, ended, *signals):
                task.cancel()
            outcomes = await asyncio.gather(*workers, return_exceptions=True)
            await asyncio.gather(ended, *signals, return_exceptions=True)
            self._pool.shutdown(wait=False, cancel_futures=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _work(self) -> None:
        while not self._stop.is_set() and (item := await self._next()) is not None:
            if isinstance(item, BadLine):
                await self._unless_cut(self._written(item.line, bad_line_row(item.line, item.reason)))
            else:
                await self._roll_out(item)

    async def _next(self) -> Run | BadLine | None:
        async with self._reading:
            item = next(self._waiting, None)
            while item is None and not self._exhausted:
                taken = await self._in_thread(self._take)
                self._waiting = iter(taken)
                item = next(self._waiting, None)
            return item

    def _take(self) -> list[Run | BadLine]:
        """The next of the input that are not finished; reads no further than it must."""
        taken = list(itertools.islice(self._wanted, _AT_ONCE))
        if not taken:
            self._exhausted = True
        left = [item for item in taken if isinstance(item, BadLine) or item.pair not in self._standing.finished]
        self._tally.earlier += len(taken) - len(left)
        return left

    @property
    def exhausted(self) -> bool:
        """Whether the whole input was read."""
        return self._exhausted

    async def _roll_out(self, run: Run) -> None:
        began = time.monotonic()
        attempt, tries = self._first_attempt, 0
        row = run.row
        outcome: bytes | LargeAnswer | Failure
        clear = True
        while True:
            tries += 1
            began_ns = time.time_ns()
            try:
                row, body = run.body(run.first_attempt + attempt)
                await self._prepare(attempt, row if clear else None, began_ns)
            except (OSError, ValueError) as error:
                outcome = Failure("internal", f"the rollout was not begun: {error}")
                break
            outcome = await self._agent.run(body, self._witness.headers(row) if self._witness else None)
            if not isinstance(outcome, Failure) or not outcome.retry or tries > self._retries:
                break
            ended_ns = time.time_ns()
            if await self._stopped_within(_pause(tries, outcome)):
                break
            self._tally.retried += 1
            if outcome.began:
                await self._abandon(row, outcome, began_ns, ended_ns)
            clear = outcome.began  # what was never begun keeps its attempt
            attempt += clear
        took_ms = round(1000 * (time.monotonic() - began), 3)
        if isinstance(outcome, LargeAnswer):
            await self._unless_cut(self._finish_large(run, row, outcome, took_ms, tries, began_ns))
        else:
            await self._unless_cut(self._finish(run, row, outcome, took_ms, tries, began_ns))

    async def _abandon(self, row: dict[str, Any], failure: Failure, began_ns: int, ended_ns: int) -> None:
        witness = self._witness
        if witness is not None:
            await self._in_thread(lambda: witness.abandoned(row, failure, began_ns, ended_ns))

    async def _prepare(self, attempt: int, row: dict[str, Any] | None, at_ns: int) -> None:
        if attempt > self._attempts.highest:
            async with self._noting:
                await self._in_thread(lambda: self._attempts.begin(attempt))
        if row is None or not (self._capture_dirs or self._witness):
            return

        def clear() -> None:
            clear_rollouts([row], self._capture_dirs)
            if self._witness is not None:
                self._witness.begun(row, at_ns)

        await self._in_thread(clear)

    async def _finish_large(
        self, run: Run, row: dict[str, Any], answer: LargeAnswer, took_ms: float, tries: int, began_ns: int
    ) -> None:
        async with self._large:  # one at a time is in memory, until it is written
            outcome: bytes | Failure
            try:
                outcome = await self._in_thread(answer.read)
            except OSError as error:
                outcome = Failure("internal", f"the answer, put away on disk, could not be read: {error}")
            await self._finish(run, row, outcome, took_ms, tries, began_ns)

    async def _finish(
        self, run: Run, row: dict[str, Any], outcome: bytes | Failure, took_ms: float, tries: int, began_ns: int
    ) -> None:
        ended_ns = time.time_ns()
        witness = self._witness

        def made() -> ResultRow:
            try:
                result = result_row(row, outcome, self._capture_dirs, latency_ms=took_ms, tries=tries)
            except Exception as error:  # noqa: BLE001 - whatever a result holds, the others go on
                failure = Failure("internal", f"the row could not be made: {type(error).__name__}: {error}")
                result = result_row(row, failure, (), latency_ms=took_ms, tries=tries)
            if witness is not None:
                witness.ending(row, result, began_ns, ended_ns)
            return result

        small = isinstance(outcome, Failure) or len(outcome) <= _INLINE_BYTES
        inline = small and witness is None and not self._capture_dirs
        result = made() if inline else await self._in_thread(made)
        await self._written(run.pair, result)
        if witness is not None:
            await self._in_thread(lambda: witness.ended(row, result, began_ns, ended_ns))

    async def _written(self, key: tuple[int, int] | int, row: ResultRow) -> None:
        await self._writer.put(row.line)
        self._standing.supersede(key)
        self._tally.add(key, row)

    async def _unless_cut(self, rest: Coroutine[Any, Any, None]) -> None:
        """What is left to do once a result is there is done, cancelled or not."""
        task = asyncio.ensure_future(rest)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await task
            raise

    async def _stopped_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except (asyncio.TimeoutError, TimeoutError):
            return False
        return True

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _pause(tries: int, failure: Failure) -> float:
    """Seconds before the next try: twice as long each time, within a factor of two at random; or what was asked for."""
    if failure.wait_s is not None:
        return min(failure.wait_s, _LONGEST_ASKED_PAUSE_S)
    longest: float = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**tries)
    return longest * random.uniform(0.5, 1)  # noqa: S311 - to part those that failed together
