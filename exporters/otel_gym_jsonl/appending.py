"""The lines of a lane that are ready, appended to its capture file under one lock and one fsync.

Runs on the writer's threads, and blocks on the disk as long as the disk does.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from otel_gym_jsonl.files import CaptureFile
from otel_gym_jsonl.handles import DESCRIPTOR_TRIES, Handles, out_of_descriptors
from otel_gym_jsonl.lanes import Job, Lane, Served

logger = logging.getLogger(__name__)

LOCK_TRIES = 16  # asked politely this often, then a thread of its own queues for the lock
LOCK_PAUSE_SECONDS = (0.0005, 0.02)


class Appender:
    """Appends to capture files, each of them by one thread at a time.

    Args:
        handles: the open files.
        lose: told of jobs whose lines are not on disk, and why.
        stand_in: gets the writer another thread, for one that will wait for a lock; False where there is none to get.

    Attributes:
        bytes_written: of lines that are durable.
    """

    def __init__(
        self, handles: Handles, lose: Callable[[list[Job], Exception], None], stand_in: Callable[[], bool]
    ) -> None:
        self._handles = handles
        self._lose = lose
        self._stand_in = stand_in
        self.bytes_written = 0

    def close(self) -> None:
        """Close every file that is not in use."""
        self._handles.close()

    def serve(self, lane: Lane) -> Served:
        """Make durable what is ready, unless the file's lock is somebody else's."""
        if not lane.ready:
            return Served(lane)
        file: CaptureFile | None = None
        jobs: list[Job] = []
        durable: list[Job] = []
        try:
            file = self._handles.take(lane.rollout_id)
            if not self._acquire(lane, file):
                self._handles.give(lane.rollout_id, file)
                lane.ready = [job for job in lane.ready if not job.settled]
                first, longest = LOCK_PAUSE_SECONDS
                return Served(lane, pause=min(longest, first * 2**lane.lock_tries) if lane.ready else None)
            jobs = lane.take_ready()
            durable = self._append(jobs, file)
            file.unlock()
        except Exception as exc:
            if file is not None:
                self._handles.drop(file)  # its lock goes with it
            if not isinstance(exc, OSError):
                with contextlib.suppress(Exception):  # a log handler may raise, too
                    logger.error("otel-gym: writing rollout %r failed", lane.rollout_id, exc_info=exc)
            if not durable:
                self._lose(jobs or lane.take_ready(), exc)
        else:
            lane.lock_tries = 0
            self._handles.give(lane.rollout_id, file)
        return Served(lane, durable)

    def _acquire(self, lane: Lane, file: CaptureFile) -> bool:
        if file.try_lock():
            return True
        lane.lock_tries += 1
        if lane.lock_tries < LOCK_TRIES:
            return False
        if not self._stand_in():  # polling could starve beside eager foreign writers: wait in the system's queue
            return False
        file.lock()
        return True

    def _append(self, jobs: list[Job], file: CaptureFile, tries: int = DESCRIPTOR_TRIES) -> list[Job]:
        """Make the lines durable; the jobs of those that are."""
        try:
            file.append(jobs[0].line if len(jobs) == 1 else b"".join([job.line for job in jobs]))
        except OSError as exc:
            if file.restored and out_of_descriptors(exc) and tries > 1:  # for the fsync of the directory
                self._handles.close()
                return self._append(jobs, file, tries - 1)
            if len(jobs) == 1 or not file.restored:
                self._lose(jobs, exc)
                return []
            # A line that does not fit must not cost its neighbours.
            return [durable for job in jobs for durable in self._append([job], file)]
        self.bytes_written += sum(len(job.line) for job in jobs)
        return jobs
