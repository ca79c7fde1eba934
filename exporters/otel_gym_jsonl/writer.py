"""The writer: lines of many rollouts become durable, each rollout's in order, off every event loop.

Lines of one rollout that wait together are written under one lock and one fsync (group commit); rollouts are written
in parallel. What one rollout's file suffers (a foreign lock, a dead disk) holds that rollout only: a lock that somebody
else holds is asked for again later, and a thread that the system keeps is replaced.
"""

from __future__ import annotations

import atexit
import contextlib
import heapq
import itertools
import logging
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from otel_gym_jsonl.appending import Appender
from otel_gym_jsonl.building import TURN_LANES, Builder
from otel_gym_jsonl.handles import Handles
from otel_gym_jsonl.lanes import Done, Job, Lane, Served, Turn, Written
from otel_gym_jsonl.markers import Markers
from otel_gym_jsonl.syncs import Syncs, open_syncs

logger = logging.getLogger(__name__)

TURN_SECONDS = 0.002  # how long it keeps it to itself that a line is durable, to tell of several at once
PATIENCE_SECONDS = 0.05  # how long a busy thread may keep the others waiting before it is doubled
BATON_SECONDS = 0.01  # that a thread waits until another has built and written
FEW_THREADS = 2  # of which one builds and writes while the other syncs: where the system syncs side by side
SLOW_SECONDS = 0.02  # a disk that keeps one of them longer gets as many as there may be
IDLE_TICK_SECONDS = 0.25
IDLE_TICKS = 20  # after so many the keeper sleeps until it is needed
MAX_EXTRA_THREADS = 64
LAST_CHANCE_SECONDS = 1.0


class Writer:
    """Makes lines durable on its own threads.

    Args:
        directory: the capture directory.
        threads: how many write at once, at most; fewer do where the system syncs side by side and the disk is quick.
        max_open_files: how many handles are kept between appends.
        timeout: seconds after which a line's waiter is let go and its rollout marked incomplete.
    """

    def __init__(self, directory: Path, *, threads: int = 4, max_open_files: int = 256, timeout: float = 30.0) -> None:
        self.directory = directory
        self.timeout = timeout
        self._max_threads = threads
        self._max_open_files = max_open_files
        self._start()
        _writers.add(self)

    def _start(self) -> None:
        """All that a process has to itself; a forked child starts over."""
        self._lock = threading.Lock()
        self._settled = threading.Condition(self._lock)
        self._lanes: dict[str, Lane] = {}
        self._accepted: deque[Job] = deque()
        self._todo: queue.SimpleQueue[Lane | None] = queue.SimpleQueue()
        self._baton = threading.Lock()  # of the thread that builds and writes
        self._threads = 0
        self._regular_threads = 1  # until the first knows what the system gives
        self._telling = 0  # threads that tell of what is done
        self._working: dict[int, Turn] = {}  # thread ident -> what it works on, or tells of
        self._writing = 0  # of these threads, those that do more than tell
        self._parked: list[tuple[float, int, Lane]] = []
        self._sequence = itertools.count()
        self._keeper: object | None = None  # the token of the one that runs
        self._keeper_sleeps = False
        self._keeper_wake = threading.Event()
        self._lines = Builder(self._lock, self._lose)
        self._files = Appender(Handles(self.directory, self._max_open_files), self._lose_all, self._stand_in)
        self.markers = Markers(self.directory)
        self.lines_lost = 0

    # ------------------------------------------------------------------ any thread

    def submit(self, rollout_id: str, make: Callable[[], bytes], done: Done, written: Written | None = None) -> None:
        """Accept a line. `make` builds it on a writer thread; `done` is told when it is durable, or why it is not.

        Never blocks on the disk. A line that cannot be built or written marks its rollout incomplete. `written` is told
        the line itself once nobody waits for it any more, on the same thread as a rule: it holds only its rollout.
        """
        job = Job(rollout_id, make, done, written)
        try:
            with self._lock:
                self._ensure_threads(rollout_id, job.accepted_at)
                lane = self._lanes.get(rollout_id)
                if lane is None:
                    lane = self._lanes[rollout_id] = Lane(rollout_id)
                    self._todo.put(lane)
                while lane.jobs and lane.jobs[0].settled:  # given up: behind a dead disk they would pile up
                    lane.jobs.popleft()
                lane.jobs.append(job)
                while self._accepted and self._accepted[0].settled:
                    self._accepted.popleft()
                self._accepted.append(job)
                if self._keeper_sleeps:
                    self._keeper_wake.set()
        except RuntimeError as exc:  # no thread to be had: the process is ending, or at its limit
            self._lose(job, exc, wait_for_marker=False)

    @property
    def bytes_written(self) -> int:
        """Of lines that are durable."""
        return self._files.bytes_written

    @property
    def backlog(self) -> int:
        """Rollouts with lines that are accepted and not settled."""
        return len(self._lanes)

    def drain(self, timeout: float) -> bool:
        """Wait until everything accepted is settled; what is not by then is marked incomplete and let go.

        Returns whether nothing had to be given up. Owed markers get one second more.
        """
        deadline = time.monotonic() + timeout
        with self._settled:
            while (self._lanes or self._telling) and (left := deadline - time.monotonic()) > 0:
                self._settled.wait(left)
            late = [job for job in self._accepted if not job.settled]
        for job in late:
            self._lose(job, TimeoutError("the server stopped before the record was durable"), wait_for_marker=False)
        return self.markers.wait(LAST_CHANCE_SECONDS) and not late

    def close(self, timeout: float = 5.0) -> None:
        """Drain, then `retire`."""
        self.drain(timeout)
        self.retire()

    def retire(self) -> None:
        """Give threads and handles back when their work is done, without waiting. A later `submit` starts anew."""
        with self._lock:
            retired, self._todo = self._todo, queue.SimpleQueue()
            for _ in range(self._threads):
                retired.put(None)
            self._threads = 0
            self._keeper = None
            self._keeper_wake.set()
        self._files.close()

    def abandon(self) -> None:
        """In a forked child: the parent's threads are not here, its locks may be held, its lines are its own affair."""
        self._start()

    # ------------------------------------------------------------------ threads

    def _ensure_threads(self, rollout_id: str, now: float) -> None:
        """Have a thread for what comes in now; the caller holds the lock."""
        if self._keeper is None:
            keeper = object()
            threading.Thread(target=self._keep, args=(keeper,), name="otel-gym-keeper", daemon=True).start()
            self._keeper = keeper
        if not self._threads and not self._add_thread():
            raise RuntimeError("no thread can be started")
        if self._threads > self._writing or rollout_id in self._lanes:
            return
        if self._threads < self._regular_threads or (self._threads < self._max_threads and self._is_slow(now)):
            self._add_thread()

    def _is_slow(self, now: float) -> bool:
        return any(now - turn.busy_since > SLOW_SECONDS for turn in self._working.values())

    def _add_thread(self) -> bool:
        """Start one more thread, if the system gives one; the caller holds the lock."""
        thread = threading.Thread(target=self._write, args=(self._todo,), name="otel-gym-writer", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._threads += 1
        return True

    def _write(self, todo: queue.SimpleQueue[Lane | None]) -> None:
        me = threading.get_ident()
        syncs = open_syncs(TURN_LANES)
        self._regular_threads = self._max_threads if syncs is None else min(self._max_threads, FEW_THREADS)
        while True:
            try:
                lane = todo.get(timeout=IDLE_TICK_SECONDS if self._threads > self._regular_threads else None)
            except queue.Empty:
                if self._is_one_too_many(todo):
                    break
                continue
            if lane is None:
                break
            turn = Turn(lane)
            with self._lock:
                self._working[me] = turn
                self._writing += 1
            with _for_a_while(self._baton):
                self._lines.build(turn, todo, self._files.room)
                self._write_built(turn)
            self._sync_written(turn, syncs)
            with self._lock:  # before it tells: what comes in now need not have another thread
                self._writing -= 1
            turn.busy_since = time.monotonic()  # who is told may take their time: the keeper sees that
            self._let_go(turn)
            with self._lock:
                del self._working[me]
            if self._is_one_too_many(todo):
                break
        if syncs is not None:
            syncs.close()
        self._files.close()  # retired: what came back since then

    def _is_one_too_many(self, todo: queue.SimpleQueue[Lane | None]) -> bool:
        """Whether the thread that asks is to end: it was added while others were held."""
        with self._lock:
            if todo is not self._todo:
                return False
            if self._is_slow(time.monotonic()):
                if self._threads <= self._max_threads or not todo.empty():
                    return False
            elif self._threads <= self._regular_threads:
                return False
            self._threads -= 1
            return True

    def _write_built(self, turn: Turn) -> None:
        while (lane := turn.next_to_write()) is not None:
            served = self._files.write(lane)
            if served is None:
                turn.written(lane)
            else:
                self._keep_served(turn, served)

    def _sync_written(self, turn: Turn, syncs: Syncs | None) -> None:
        """Make durable what is written: side by side, where the system can."""
        if syncs is not None and turn.is_for_several:
            for news in self._files.sync_all(turn.take_written(), syncs, TURN_SECONDS):
                if news is None:
                    self._let_go(turn)
                else:
                    self._keep_served(turn, news)
        while (lane := turn.next_to_sync()) is not None:
            self._keep_served(turn, self._files.sync(lane))

    def _keep_served(self, turn: Turn, served: Served) -> None:
        if turn.keep(served) >= TURN_SECONDS:
            self._let_go(turn)

    def _let_go(self, turn: Turn) -> None:
        """Tell of what is durable of a turn, and leave its lanes; the keeper does, where the turn's thread is held."""
        served = turn.take_served()
        told = [job for one in served for job in one.durable if job.settle(None)]
        with self._lock:
            for one in served:
                self._leave(one.lane, one.pause)
            self._telling += 1
        if told:
            self.markers.nudge()  # the disk takes what it gets
        for job in told:
            _tell(job, None)
        with self._lock:
            self._telling -= 1
            self._wake_if_done()

    def _leave(self, lane: Lane, pause: float | None) -> None:
        """With the lock held: nobody works on the lane for now."""
        if pause is not None:
            heapq.heappush(self._parked, (time.monotonic() + pause, next(self._sequence), lane))
            self._keeper_wake.set()
        elif lane.jobs:
            self._todo.put(lane)
            if not self._threads:  # closed meanwhile, and this came in all the same
                self._add_thread()
        else:
            del self._lanes[lane.rollout_id]

    def _wake_if_done(self) -> None:
        """With the lock held: wake who waits until nothing is left to do."""
        if not self._lanes and not self._telling:
            self._settled.notify_all()

    def _stand_in(self) -> bool:
        """One more thread, for one that is going to wait in the system's queue for a lock."""
        with self._lock:
            return self._threads < self._max_threads + MAX_EXTRA_THREADS and self._add_thread()

    def _lose_all(self, jobs: list[Job], error: Exception) -> None:
        for job in jobs:
            self._lose(job, error)

    def _lose(self, job: Job, error: Exception, *, wait_for_marker: bool = True) -> None:
        """Say that a line is lost: log, mark, then let the waiter go."""
        if job.settled:
            return
        self.lines_lost += 1
        reason = str(error) or type(error).__name__
        _log("otel-gym: a record of rollout %r is not on disk: %s", job.rollout_id, reason)
        if wait_for_marker:
            self.markers.put(job.rollout_id)
        else:
            self.markers.owe(job.rollout_id)
        if job.settle(error):
            _tell(job, error)

    # ------------------------------------------------------------------ the keeper's thread

    def _keep(self, token: object) -> None:
        """Bring parked lanes back, let go what takes too long, double threads that the system keeps."""
        idle = 0
        while True:
            with self._lock:
                if self._keeper is not token and not self._lanes:
                    return
                now = time.monotonic()
                late = self._late(now)
                while self._parked and self._parked[0][0] <= now:
                    self._todo.put(heapq.heappop(self._parked)[2])
                held = [turn for turn in self._working.values() if now - turn.busy_since > PATIENCE_SECONDS]
                for lane in [lane for turn in held for lane in turn.take_rest()]:
                    self._todo.put(lane)
                wanted = self._max_threads + min(2 * len(held), MAX_EXTRA_THREADS) if held else 1
                for _ in range(min(self._todo.qsize(), wanted - self._threads)):
                    self._add_thread()
                idle = 0 if self._lanes or self._accepted else idle + 1
                pause: float | None = PATIENCE_SECONDS if self._lanes else IDLE_TICK_SECONDS
                if self._parked:
                    pause = max(0.0, min(PATIENCE_SECONDS, self._parked[0][0] - now))
                if idle > IDLE_TICKS:
                    pause = None
                self._keeper_sleeps = pause is None
                self._keeper_wake.clear()
            for turn in held:
                self._let_go(turn)
            for job in late:
                self._lose(job, TimeoutError(f"the write took longer than {self.timeout:g} s"), wait_for_marker=False)
            self._keeper_wake.wait(pause)

    def _late(self, now: float) -> list[Job]:
        late = []
        while self._accepted and (self._accepted[0].settled or self._accepted[0].accepted_at + self.timeout <= now):
            late.append(self._accepted.popleft())
        return late


@contextlib.contextmanager
def _for_a_while(baton: threading.Lock) -> Iterator[None]:
    """With the baton, or without it after a while: threads that build at once fight for the interpreter, but none may
    hold the others."""
    has_it = baton.acquire(timeout=BATON_SECONDS)
    try:
        yield
    finally:
        if has_it:
            baton.release()


def _tell(job: Job, error: BaseException | None) -> None:
    """Who wants to know of the line must not end our threads."""
    try:
        job.tell(error)
    except Exception as exc:  # noqa: BLE001
        _log("otel-gym: what follows on a record of rollout %r failed", job.rollout_id, exc_info=exc)


def _log(message: str, *values: object, exc_info: BaseException | None = None) -> None:
    """Say what went wrong; a log handler that raises must not end our threads, nor keep anybody waiting."""
    with contextlib.suppress(Exception):
        logger.error(message, *values, exc_info=exc_info)


_writers: weakref.WeakSet[Writer] = weakref.WeakSet()


def _abandon_all() -> None:
    for writer in list(_writers):
        writer.abandon()


def _close_all() -> None:
    for writer in list(_writers):
        with contextlib.suppress(Exception):
            writer.close()


os.register_at_fork(after_in_child=_abandon_all)
atexit.register(_close_all)
