"""What waits to be written: a job is one line, a lane is the queue of one rollout, a turn is a thread's next lanes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

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


class Lane:
    """The queue of one rollout; at most one thread works on it at a time."""

    __slots__ = ("jobs", "lock_tries", "ready", "rollout_id")

    def __init__(self, rollout_id: str) -> None:
        self.rollout_id = rollout_id
        self.jobs: deque[Job] = deque()  # not yet turned into lines
        self.ready: list[Job] = []  # lines that wait for the file's lock
        self.lock_tries = 0

    def take(self, most: int) -> list[Job]:
        """The next jobs to build; none while built lines still wait for the lock."""
        if self.ready:
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


class Turn:
    """The lanes that one thread serves together: it builds the lines of all, then writes one file after another.

    What one file suffers must not hold the others: whoever sees that the thread is held may take the rest away.

    Attributes:
        busy_since: when the thread began with what it does now, monotonic.
    """

    __slots__ = ("_built", "_unbuilt", "busy_since")

    def __init__(self, lanes: list[Lane]) -> None:
        self._unbuilt = deque(lanes)  # their pop() is atomic: each lane comes to one thread
        self._built: deque[Lane] = deque()
        self.busy_since = time.monotonic()

    def next_to_build(self) -> Lane | None:
        """A lane for the thread alone; to be given back to `built`."""
        return self._next(self._unbuilt)

    def built(self, lane: Lane) -> None:
        """Its lines are ready."""
        self._built.append(lane)

    def next_to_write(self) -> Lane | None:
        """A lane for the thread alone."""
        return self._next(self._built)

    def take_rest(self) -> list[Lane]:
        """From another thread: the lanes that nobody works on."""
        rest = []
        while (lane := self._pop(self._unbuilt) or self._pop(self._built)) is not None:
            rest.append(lane)
        return rest

    def _next(self, lanes: deque[Lane]) -> Lane | None:
        self.busy_since = time.monotonic()
        return self._pop(lanes)

    @staticmethod
    def _pop(lanes: deque[Lane]) -> Lane | None:
        try:
            return lanes.popleft()
        except IndexError:
            return None
