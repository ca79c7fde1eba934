"""What stands in the output already: finished pairs, and the rows of failures that a better one makes void."""

from __future__ import annotations

from typing import Any

from otel_gym.collect.pairs import PairSet
from otel_gym.collect.result_row import ERROR_KEY
from otel_gym.collect.row_file import RowFile
from otel_gym.collect.tasks import Pair
from otel_gym.rollouts.ids import ATTEMPT_INDEX_KEY, ROLLOUT_INDEX_KEY, TASK_INDEX_KEY

FailureKey = Pair | int
"""What a row without a result is of: a pair, or a line of the input."""


class Standing:
    """Memory: a bit for each finished pair, some hundred bytes for each row without a result.

    Attributes:
        finished: the pairs that have a result.
        rows: how many rows there are.
        damaged: how many lines are no rows of a rollout.
        highest_attempt: that a row has; -1 without rows.
        superseded: where rows begin that a later row of the same pair has made void.
    """

    def __init__(self, file: RowFile) -> None:
        self.finished = PairSet()
        self.rows = 0
        self.damaged = 0
        self.highest_attempt = -1
        self.superseded: set[int] = set()
        self._failed: dict[FailureKey, int] = {}
        for place, row in file.rows():
            self._take(place, row)

    def _take(self, place: int, row: dict[str, Any] | None) -> None:
        key = None if row is None else _key(row)
        if row is None or key is None:
            self.damaged += 1
            return
        self.rows += 1
        self.highest_attempt = max(self.highest_attempt, _index(row.get(ATTEMPT_INDEX_KEY)) or 0)
        if isinstance(key, int) or row.get(ERROR_KEY) is not None:
            if isinstance(key, tuple) and key in self.finished:
                self.superseded.add(place)
                return
            self.supersede(key)
            self._failed[key] = place
        else:
            self.supersede(key)
            self.finished.add(key)

    def supersede(self, key: FailureKey) -> None:
        """A new row of this pair or line stands in the file, durably: its row without a result is void."""
        place = self._failed.pop(key, None)
        if place is not None:
            self.superseded.add(place)


def _key(row: dict[str, Any]) -> FailureKey | None:
    task, rollout = _index(row.get(TASK_INDEX_KEY)), _index(row.get(ROLLOUT_INDEX_KEY))
    if task is not None and rollout is not None:
        return task, rollout
    error = row.get(ERROR_KEY)
    return _index(error.get("line")) if isinstance(error, dict) else None


def _index(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None
