"""Which rollouts a collection runs, told briefly, so that another one can see whether it would run one of them too.

An attempt is not told: of a rollout that is claimed, all attempts are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from otel_gym.collect.pairs import PairSet
from otel_gym.collect.tasks import Pair, Run, runs_of, task_lines
from otel_gym.rollouts.ids import ROLLOUT_ID_KEY

MOST_PIECES = 50_000
"""What would take more stretches and names than this is told as everything."""

_ATTEMPTS = re.compile(r"(?:-a[1-9][0-9]*)+\Z")
_PAIR = re.compile(r"(0|[1-9][0-9]{0,17})-(0|[1-9][0-9]{0,17})")

Stretches = dict[int, list[list[int]]]
"""By rollout index: the task indices, from and to."""


class Claim:
    """A set of rollouts.

    Attributes:
        everything: it is larger than could be told, so it is taken for all that there are.
    """

    def __init__(self) -> None:
        self.everything = False
        self._stretches: Stretches = {}
        self._names: set[str] = set()
        self._pieces = 0

    def add_pair(self, pair: Pair) -> None:
        """Take the rollout of a task in."""
        task, rollout = pair
        stretches = self._stretches.setdefault(rollout, [])
        if stretches and stretches[-1][0] <= task <= stretches[-1][1] + 1:
            stretches[-1][1] = max(task, stretches[-1][1])
        else:
            stretches.append([task, task])
            self._one_more()

    def add_name(self, rollout_id: str) -> None:
        """Take a rollout in that has an id of its own."""
        name = _ATTEMPTS.sub("", rollout_id)
        if (match := _PAIR.fullmatch(name)) is not None:  # the same id as that of the pair
            self.add_pair((int(match[1]), int(match[2])))
        elif name not in self._names:
            self._names.add(name)
            self._one_more()

    def _one_more(self) -> None:
        self._pieces += 1
        if self._pieces > MOST_PIECES:
            self.everything = True
            self._stretches, self._names, self._pieces = {}, set(), 0

    def told(self) -> dict[str, Any]:
        """As JSON."""
        if self.everything:
            return {"everything": True}
        return {"tasks": {str(rollout): merged for rollout, merged in self._merged()}, "ids": sorted(self._names)}

    @classmethod
    def of(cls, told: object) -> Claim:
        """Of what `told` gave; what cannot be understood is everything."""
        claim = cls()
        try:
            claim._read(told)
        except (ValueError, TypeError, KeyError, AttributeError):
            claim.everything = True
        return claim

    def _read(self, told: Any) -> None:
        self.everything = told.get("everything", False) is not False
        if not self.everything:
            tasks: Mapping[str, list[list[int]]] = told["tasks"]
            for rollout, stretches in tasks.items():
                self._stretches[int(rollout)] = [[first + 0, last + 0] for first, last in stretches]
            self._names.update(map(str, told["ids"]))

    def shared_with(self, other: Claim) -> str | None:
        """The id of a rollout that is in both; None where there is none."""
        for one, two in ((self, other), (other, self)):
            if one.everything:
                return "any" if two.everything else two._first()
        theirs = dict(other._merged())
        for rollout, ours in self._merged():
            if (task := _first_shared(ours, theirs.get(rollout, []))) is not None:
                return f"{task}-{rollout}"
        return min(self._names & other._names, default=None)

    def _first(self) -> str | None:
        for rollout, stretches in self._merged():
            return f"{stretches[0][0]}-{rollout}"
        return min(self._names, default=None)

    def _merged(self) -> Iterator[tuple[int, list[list[int]]]]:
        for rollout, stretches in sorted(self._stretches.items()):
            merged: list[list[int]] = []
            for first, last in sorted(stretches):
                if merged and first <= merged[-1][1] + 1:
                    merged[-1][1] = max(last, merged[-1][1])
                else:
                    merged.append([first, last])
            yield rollout, merged


def _first_shared(ours: list[list[int]], theirs: list[list[int]]) -> int | None:
    """The first number in both, of sorted stretches."""
    here, there = iter(ours), iter(theirs)
    one, two = next(here, None), next(there, None)
    while one is not None and two is not None:
        if one[1] < two[0]:
            one = next(here, None)
        elif two[1] < one[0]:
            two = next(there, None)
        else:
            return max(one[0], two[0])
    return None


def claim_of(path: Path, limit: int | None, repeats: int, finished: PairSet) -> tuple[Claim, int]:
    """What a collection of this input runs, and how many tasks there are; a pass over the file before the first post.

    A line is parsed only where it may have indices or an id of its own.

    Raises:
        OSError: the file cannot be read.
    """
    claim, tasks = Claim(), 0
    for number, text in task_lines(path, limit):
        tasks += 1
        if claim.everything:
            continue
        if b"_ng_" not in text and b"\\u" not in text:  # or an escape hides it
            for rollout in range(repeats):
                if (number, rollout) not in finished:
                    claim.add_pair((number, rollout))
            continue
        for run in _runs_of_line(number, text, repeats):
            if run.pair not in finished:
                explicit = run.row.get(ROLLOUT_ID_KEY)
                claim.add_pair(run.pair) if explicit is None else claim.add_name(explicit)
    return claim, tasks


def _runs_of_line(number: int, text: bytes, repeats: int) -> list[Run]:
    try:
        return runs_of(number, text, repeats)
    except ValueError:  # it becomes a row with its error, and runs nothing
        return []
