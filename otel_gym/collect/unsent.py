"""Which rollouts a tracing backend may lack, across kills: what was begun, what has ended, what has arrived.

A small file beside the output, a JSON object a line. It outlives the process, not the machine: nothing is fsynced, as
a span is no record. Ids are derived and times are kept, so that what is sent again is the same span.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_gym.rollouts.ids import ATTEMPT_INDEX_KEY, ROLLOUT_ID_KEY, ROLLOUT_INDEX_KEY, TASK_INDEX_KEY

MOST_KEPT = 50_000
"""Rollouts beyond these are given up, the oldest first: a backend was away for so long."""

_ROOM = 100_000  # lines before the file is written anew
_AGENT = "agent_ref"
_TOLD_KEYS = (TASK_INDEX_KEY, ROLLOUT_INDEX_KEY, ATTEMPT_INDEX_KEY, ROLLOUT_ID_KEY)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a rollout.

    Attributes:
        row: of what was posted: the keys that its root span tells of.
        began_ns: when it was posted, in nanoseconds since the epoch.
        ended_ns: None where nobody saw its end.
        failure: code of why it has no result.
        has_row: whether its row was about to be written; an attempt that was abandoned for another one has none.
    """

    row: Mapping[str, Any]
    began_ns: int
    ended_ns: int | None = None
    failure: str | None = None
    has_row: bool = False

    def told(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "row": self.row,
            "began_ns": self.began_ns,
            "ended_ns": self.ended_ns,
            "failure": self.failure,
            "has_row": self.has_row,
        }

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Attempt:
        """Of what `told` gave.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        ended = told["ended_ns"]
        return cls(
            dict(told["row"]),
            int(told["began_ns"]),
            None if ended is None else int(ended),
            None if told["failure"] is None else str(told["failure"]),
            bool(told["has_row"]),
        )


class Unsent:
    """The file of one output. Everything here blocks, for as long as a small write does. Safe from any thread.

    Args:
        output: the file of rows, locked by this collection.
    """

    def __init__(self, output: Path) -> None:
        self.path = path_of(output)
        self._lock = threading.Lock()
        self._attempts: OrderedDict[str, Attempt] = OrderedDict()
        self._fd = -1
        self._lines = 0
        self._load()

    def left(self) -> dict[str, Attempt]:
        """What is not known to have arrived, by rollout id, in the order in which it began."""
        with self._lock:
            return dict(self._attempts)

    def begun(self, rollout_id: str, row: Mapping[str, Any], at_ns: int) -> None:
        """An attempt is about to be posted."""
        told = {key: row[key] for key in _TOLD_KEYS if key in row}
        if isinstance(agent := row.get(_AGENT), Mapping) and isinstance(name := agent.get("name"), str):
            told[_AGENT] = {"name": name}
        self._put(rollout_id, Attempt(told, at_ns))

    def ended(self, rollout_id: str, times: tuple[int, int], failure: str | None, *, has_row: bool) -> None:
        """It has ended; its row, if it has one, is not written before this."""
        with self._lock:
            known = self._attempts.get(rollout_id)
        if known is not None:
            self._put(rollout_id, Attempt(known.row, *times, failure, has_row))

    def arrived(self, rollout_id: str) -> None:
        """Every backend has its spans."""
        with self._lock:
            if self._attempts.pop(rollout_id, None) is not None:
                self._write({"id": rollout_id})

    def close(self) -> None:
        """Leave a file only where something may be missing."""
        with self._lock, contextlib.suppress(OSError):
            if self._attempts:
                self._anew()
            else:
                self.path.unlink(missing_ok=True)
        self._give_back()

    def _put(self, rollout_id: str, attempt: Attempt) -> None:
        with self._lock:
            self._keep(rollout_id, attempt)
            self._write({"id": rollout_id, "attempt": attempt.told()})

    def _keep(self, rollout_id: str, attempt: Attempt) -> None:
        self._attempts[rollout_id] = attempt
        if len(self._attempts) > MOST_KEPT:
            self._attempts.popitem(last=False)

    def _write(self, line: dict[str, Any]) -> None:
        """With the lock held. A disk that refuses costs spans after a kill, and nothing else."""
        with contextlib.suppress(OSError):
            if self._fd < 0 or self._lines >= _ROOM:
                self._anew()
            else:
                self._lines += 1
                os.write(self._fd, json.dumps(line).encode() + b"\n")

    def _anew(self) -> None:
        """The file with what is left, in one step."""
        self._give_back()
        beside = self.path.with_name(f"{self.path.name}.new")
        with beside.open("wb") as file:
            for rollout_id, attempt in self._attempts.items():
                file.write(json.dumps({"id": rollout_id, "attempt": attempt.told()}).encode() + b"\n")
        beside.replace(self.path)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._lines = 0

    def _give_back(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _load(self) -> None:
        with contextlib.suppress(OSError), self.path.open("rb") as lines:
            for line in lines:
                with contextlib.suppress(ValueError, KeyError, TypeError):  # the last one may be torn
                    found = json.loads(line)
                    if "attempt" in found:
                        self._keep(str(found["id"]), Attempt.of(found["attempt"]))
                    else:
                        self._attempts.pop(str(found["id"]), None)


def path_of(output: Path) -> Path:
    """Where it lies."""
    return output.with_name(f".{output.name}.collect-spans.jsonl")


def forget(output: Path) -> None:
    """A collection begins from nothing."""
    path_of(output).unlink(missing_ok=True)
