"""What waits to be written: a job is one line, a lane is the queue of one rollout, a turn is a thread's next lanes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from otel_gym_jsonl.files import CaptureFile

_Thing = TypeVar("_Thing")

Done = Callable[[BaseException | None], None]
"""Told once, on some thread: None when the line is durable, else what went wrong. Returns quickly, never raises."""

Written = Callable[[bytes | None], None]
"""Told once, after `Done`: the line as it stands in the file, or None when it does not. May take its time."""


class Job:
    """One line on its way to the disk."""

    __slots__ = ("_done", "_written", "accepted_at", "line", "make", "rollout_id")

    def __init__(self, rollout_id: str, make: Callable[[], bytes], done: Done, written: Written | None = None) -> None:
        self.rollout_id = rollout_id
        self._written = written
        self.make: Callable[[], bytes] | None = make
        self.line = b""
        self.accepted_at = time.monotonic()
        self._done = [done]  # a list, since its pop() is atomic: writer and keeper may settle at once

    @property
    def settled(self) -> bool:
        """Whether the one who waits has been told."""
        return not self._done

    def settle(self, error: BaseException | None) -> bool:
        """Tell the one who waits, once; False when somebody already did."""
        try:
            done = self._done.pop()
        except IndexError:
            return False
        self.make = None
        if self._written is None or error is not None:
            self.line = b""
        done(error)
        return True

    def tell(self, error: BaseException | None) -> None:
        """After `settle`, by whoever it was that settled: what stands in the file now."""
        written, self._written = self._written, None
        line, self.line = self.line, b""
        if written is not None:
            written(line if error is None else None)


class Unsynced:
    """Lines that are written and not yet durable, and their file, whose lock is ours."""

    __slots__ = ("file", "jobs")

    def __init__(self, file: CaptureFile, jobs: list[Job]) -> None:
        self.file = file
        self.jobs = jobs


class Lane:
    """The queue of one rollout; at most one thread works on it at a time."""

    __slots__ = ("jobs", "lock_tries", "ready", "rollout_id", "unsynced")

    def __init__(self, rollout_id: str) -> None:
        self.rollout_id = rollout_id
        self.jobs: deque[Job] = deque()  # not yet turned into lines
        self.ready: list[Job] = []  # lines that wait for the file's lock
        self.unsynced: Unsynced | None = None
        self.lock_tries = 0

    def take(self, most: int) -> list[Job]:
        """The next jobs to build; none while built lines still wait for the lock, or written ones for the disk."""
        if self.ready or self.unsynced is not None:
            return []
        if len(self.jobs) <= most:
            jobs, self.jobs = list(self.jobs), deque()
            return jobs
        return [self.jobs.popleft() for _ in range(most)]

    def put_back(self, jobs: list[Job]) -> None:
        """Jobs that were taken and not built go first again."""
        self.jobs.extendleft(reversed(jobs))

    def take_ready(self) -> list[Job]:
        """The built lines, which are the caller's business from here on."""
        jobs, self.ready = self.ready, []
        return jobs

    def take_unsynced(self) -> Unsynced:
        """The written lines, likewise.

        Raises:
            ValueError: there are none.
        """
        unsynced, self.unsynced = self.unsynced, None
        if unsynced is None:
            raise ValueError(f"nothing of rollout {self.rollout_id} is written")
        return unsynced


class Served:
    """What became of a lane in its thread's hands.

    Attributes:
        durable: jobs whose lines are; nobody was told yet.
        pause: seconds after which it is tried again: the lock is somebody else's, or no descriptor is left.
    """

    __slots__ = ("durable", "lane", "pause")

    def __init__(self, lane: Lane, durable: Sequence[Job] = (), pause: float | None = None) -> None:
        self.lane = lane
        self.durable = durable
        self.pause = pause


class Turn:
    """The lanes that one thread serves together: it builds the lines of all, writes one file after another, syncs all.

    What one file suffers must not hold the others: whoever sees that the thread is held may take the rest away, and
    tell of what is done.

    Args:
        first: a lane that waits; others may come in too.

    Attributes:
        busy_since: when the thread began with what it does now, monotonic.
    """

    __slots__ = ("_built", "_first_served", "_served", "_written", "busy_since", "first")

    def __init__(self, first: Lane) -> None:
        self.first = first
        self._built: deque[Lane] = deque()  # their popleft() is atomic: each lane comes to one thread
        self._written: deque[Lane] = deque()
        self._served: deque[Served] = deque()
        self._first_served = 0.0
        self.busy_since = time.monotonic()

    def built(self, lane: Lane) -> None:
        """Its lines are ready."""
        self._built.append(lane)

    def next_to_write(self) -> Lane | None:
        """A lane for the thread alone."""
        self.busy_since = time.monotonic()
        return _first(self._built)

    @property
    def is_for_several(self) -> bool:
        """Whether there is more than one file to sync."""
        return len(self._written) > 1

    def written(self, lane: Lane) -> None:
        """Its lines are, and wait to be synced together with others."""
        self._written.append(lane)

    def next_to_sync(self) -> Lane | None:
        """A lane for the thread alone."""
        self.busy_since = time.monotonic()
        return _first(self._written)

    def take_written(self) -> list[Lane]:
        """Lanes for the thread alone."""
        self.busy_since = time.monotonic()
        return _all(self._written)

    def keep(self, served: Served) -> float:
        """A lane that the thread is done with; for how many seconds the first such lane has waited for the others."""
        now = time.monotonic()
        if not self._served:
            self._first_served = now
        self._served.append(served)
        return now - self._first_served

    def take_served(self) -> list[Served]:
        """From any thread: the lanes that this thread is done with, and nobody knows of."""
        return _all(self._served)

    def take_rest(self) -> list[Lane]:
        """From another thread: the lanes that nobody works on."""
        return _all(self._built) + _all(self._written)


def _first(things: deque[_Thing]) -> _Thing | None:
    try:
        return things.popleft()
    except IndexError:
        return None


def _all(things: deque[_Thing]) -> list[_Thing]:
    found = []
    while (one := _first(things)) is not None:
        found.append(one)
    return found
