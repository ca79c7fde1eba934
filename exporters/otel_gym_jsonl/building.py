"""The jobs of lanes become lines: a thread's turn, of bounded size.

Runs on the writer's threads, and takes the interpreter; what it makes is appended by `appending`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from otel_gym_jsonl.lanes import Job, Lane, Turn

GROUP_LINES = 64
GROUP_BYTES = 8 * 1024 * 1024
LINES_IN_A_ROW = 32  # of one lane; then the event loop comes in between
LANES_IN_A_ROW = 24
TURN_LANES = 64  # that a thread takes at once, when many wait
TURN_BYTES = 1024 * 1024  # that it builds before it writes


class Builder:
    """Builds lines, of each lane by one thread at a time.

    Args:
        lock: of the lanes.
        lose: told of a job whose line cannot be built, and why.
    """

    def __init__(self, lock: threading.Lock, lose: Callable[[Job, Exception], None]) -> None:
        self._lock = lock
        self._lose = lose

    def build(self, turn: Turn, todo: queue.SimpleQueue[Lane | None], room: int) -> None:
        """Build lines of the turn's lane and of others that wait, not so many that those built first wait for long.

        At most of `room` lanes, but of one.
        """
        lane = turn.first
        size = lanes = 0
        while True:
            turn.busy_since = time.monotonic()
            size += self._build(lane)
            turn.built(lane)
            lanes += 1
            if size >= TURN_BYTES or lanes >= min(TURN_LANES, room):
                return
            if lanes % LANES_IN_A_ROW == 0:
                time.sleep(0)
            try:
                more = todo.get_nowait()
            except queue.Empty:
                return
            if more is None:  # for one of the threads that are to end
                todo.put(None)
                return
            lane = more

    def _build(self, lane: Lane) -> int:
        """Turn the next jobs of a lane into lines that are ready; their size in bytes."""
        with self._lock:
            jobs = lane.take(GROUP_LINES)
        size = 0
        for position, job in enumerate(jobs):
            make = job.make
            if make is None:  # given up meanwhile
                continue
            try:
                job.line = make()
            except Exception as exc:  # noqa: BLE001  a record that cannot be built costs only itself
                self._lose(job, exc)
                continue
            lane.ready.append(job)
            size += len(job.line)
            if position % LINES_IN_A_ROW == LINES_IN_A_ROW - 1:
                time.sleep(0)
            if size >= GROUP_BYTES:
                with self._lock:
                    lane.put_back(jobs[position + 1 :])
                break
        return size
