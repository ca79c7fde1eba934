"""The lines of lanes that are ready, appended to their capture files: each file's under one lock and one fsync.

Runs on the writer's threads, and blocks on the disk as long as the disk does.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator

from otel_gym_jsonl.files import CaptureFile, sync_directory
from otel_gym_jsonl.handles import DESCRIPTOR_TRIES, Handles, out_of_descriptors
from otel_gym_jsonl.lanes import Job, Lane, Served, Unsynced
from otel_gym_jsonl.syncs import Syncs

logger = logging.getLogger(__name__)

LOCK_TRIES = 16  # asked politely this often, then a thread of its own queues for the lock
LOCK_PAUSE_SECONDS = (0.0005, 0.02)
DESCRIPTOR_PAUSE_SECONDS = 0.005


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

    @property
    def room(self) -> int:
        """How many more files one thread may use at once, where it can do with fewer."""
        return self._handles.room

    def close(self) -> None:
        """Close every file that is not in use."""
        self._handles.close()

    def write(self, lane: Lane) -> Served | None:
        """Write what is ready; None when `sync` or `sync_all` is to make it durable."""
        if lane.unsynced is not None:
            return None
        if not lane.ready:
            return Served(lane)
        file: CaptureFile | None = None
        try:
            file = self._handles.take(lane.rollout_id)
            if not self._acquire(lane, file):
                self._handles.give(lane.rollout_id, file)
                first, longest = LOCK_PAUSE_SECONDS
                return _later(lane, min(longest, first * 2**lane.lock_tries))
            lane.lock_tries = 0
        except Exception as exc:  # noqa: BLE001  whatever it is, it costs no other rollout
            if file is None and out_of_descriptors(exc) and self._handles.some_come_back:
                return _later(lane, DESCRIPTOR_PAUSE_SECONDS)
            self._give_up(lane.take_ready(), file, exc)
            return Served(lane)
        jobs = lane.take_ready()
        try:
            file.write(_joined(jobs))
        except Exception as exc:  # noqa: BLE001
            return self._append_again(lane, Unsynced(file, jobs), exc)
        lane.unsynced = Unsynced(file, jobs)
        return None

    def sync(self, lane: Lane) -> Served:
        """Make durable what is written."""
        unsynced = lane.take_unsynced()
        try:
            unsynced.file.sync()
        except Exception as exc:  # noqa: BLE001
            return self._append_again(lane, unsynced, exc)
        return self._finish(lane, unsynced)

    def sync_all(self, lanes: Iterable[Lane], syncs: Syncs, pulse: float) -> Iterator[Served | None]:
        """Make durable what is written of several lanes, side by side.

        Each as soon as it is; None whenever there is no news for `pulse` seconds.
        """
        written = [(lane, lane.take_unsynced()) for lane in lanes]
        new = [(lane, unsynced) for lane, unsynced in written if unsynced.file.is_new]
        if new:
            try:
                sync_directory(self._handles.directory)
            except OSError as exc:
                written = [(lane, unsynced) for lane, unsynced in written if not unsynced.file.is_new]
                for lane, unsynced in new:
                    unsynced.file.cut_back()
                    yield self._append_again(lane, unsynced, exc)
        waiting = {unsynced.file.fileno(): (lane, unsynced) for lane, unsynced in written}
        for ended in syncs.run(list(waiting), pulse):
            if ended is None:
                yield None
                continue
            descriptor, error = ended
            lane, unsynced = waiting.pop(descriptor)
            if error is None:
                unsynced.file.is_synced()
                yield self._finish(lane, unsynced)
            else:
                unsynced.file.cut_back()
                yield self._append_again(lane, unsynced, error)

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

    def _finish(self, lane: Lane, unsynced: Unsynced) -> Served:
        """The lines are durable: give the file back."""
        jobs = unsynced.jobs
        self._count(jobs)
        self._release(lane, unsynced.file)
        return Served(lane, jobs)

    def _append_again(self, lane: Lane, unsynced: Unsynced, error: Exception) -> Served:
        """Lines were not written, or not synced, and cut back: what can be had all the same."""
        file, jobs = unsynced.file, unsynced.jobs
        try:
            if not isinstance(error, OSError):
                raise error
            durable = self._recover(jobs, file, error, DESCRIPTOR_TRIES)
        except Exception as exc:  # noqa: BLE001
            self._give_up(jobs, file, exc)
            return Served(lane)
        self._release(lane, file)
        return Served(lane, durable)

    def _append(self, jobs: list[Job], file: CaptureFile, tries: int = DESCRIPTOR_TRIES) -> list[Job]:
        """Make the lines durable; the jobs of those that are."""
        try:
            file.append(_joined(jobs))
        except OSError as exc:
            return self._recover(jobs, file, exc, tries)
        self._count(jobs)
        return jobs

    def _recover(self, jobs: list[Job], file: CaptureFile, error: OSError, tries: int) -> list[Job]:
        """After an append that failed: try again where that helps; the jobs whose lines are durable."""
        if file.restored and out_of_descriptors(error) and tries > 1:  # for the fsync of the directory
            self._handles.close()
            return self._append(jobs, file, tries - 1)
        if len(jobs) == 1 or not file.restored:
            self._lose(jobs, error)
            return []
        # A line that does not fit must not cost its neighbours.
        return [durable for job in jobs for durable in self._append([job], file)]

    def _release(self, lane: Lane, file: CaptureFile) -> None:
        """Keep the file for the next append, without its lock."""
        try:
            file.unlock()
        except OSError:
            self._handles.drop(file)  # its lock goes with it
        else:
            self._handles.give(lane.rollout_id, file)

    def _give_up(self, jobs: list[Job], file: CaptureFile | None, error: Exception) -> None:
        if file is not None:
            self._handles.drop(file)
        if not isinstance(error, OSError):
            with contextlib.suppress(Exception):  # a log handler may raise, too
                logger.error("otel-gym: records of rollout %r cannot be written", jobs[0].rollout_id, exc_info=error)
        self._lose(jobs, error)

    def _count(self, jobs: list[Job]) -> None:
        self.bytes_written += sum(len(job.line) for job in jobs)


def _joined(jobs: list[Job]) -> bytes:
    return jobs[0].line if len(jobs) == 1 else b"".join([job.line for job in jobs])


def _later(lane: Lane, pause: float) -> Served:
    """What of the lane's lines somebody still waits for is tried again after so many seconds."""
    lane.ready = [job for job in lane.ready if not job.settled]
    return Served(lane, pause=pause if lane.ready else None)
