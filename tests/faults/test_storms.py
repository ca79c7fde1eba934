"""Many calls, many faults, no plan: each record is there once, or its rollout is marked; each client got its bytes."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from tests.faults.conftest import Start
from tests.faults.processes import asked, eventually, served

ROLLOUTS = [f"r{number}" for number in range(8)]
FAULTS = [
    ("write", "fail", errno.ENOSPC),
    ("write", "fail", errno.EIO),
    ("write", "short", 50),
    ("write", "hang", 120),
    ("fsync", "fail", errno.EIO),
    ("fsync", "fail", errno.EDQUOT),
    ("fsync", "hang", 120),
    ("open", "fail", errno.EMFILE),
    ("open", "fail", errno.EACCES),
    ("flock", "fail", errno.ENOLCK),
    ("flock", "hang", 60),
    ("close", "fail", errno.EIO),
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_storm_of_faults_loses_nothing_without_a_mark(start: Start, disk_faults: Path, seed: int) -> None:
    chance = random.Random(seed)
    child = start(library=disk_faults, max_open_files=3, writer_threads=2)
    expected: dict[str, list[str]] = {rollout: [] for rollout in ROLLOUTS}
    spoiled: set[str] = set()
    for turn in range(25):
        rules = []
        for _ in range(chance.randrange(4)):
            operation, action, argument = chance.choice(FAULTS)
            rollout = chance.choice(ROLLOUTS[:5])  # the others never see a fault
            rules.append(f"{operation} {rollout}.capture {action} {argument} {chance.randrange(4)} 2")
            spoiled.add(rollout)
        child.disk(*rules)
        calls = []
        for number in range(chance.randrange(1, 40)):
            rollout, unique = chance.choice(ROLLOUTS), f"{turn}-{number}"
            expected[rollout].append(unique)
            filler = chance.choice([0, 0, 5000])
            calls.append(asked(rollout, unique, filler=filler, streamed=chance.random() < 0.3))
        some = chance.randrange(len(calls))
        leaving = child.begin("abandoned", calls=[{**call, "seconds": 0.02} for call in calls[:some]])
        staying = child.begin("calls", calls=calls[some:])
        if turn % 8 == 7:
            assert 0 == child.do("fork", calls=[asked("r7", f"fork-{turn}")], closing=True)
            expected["r7"].append(f"fork-{turn}")
        served(staying)
        leaving.result(60)
    child.disk()
    child.do("close")
    for rollout in ROLLOUTS:
        uniques = child.uniques(rollout)
        missing = set(expected[rollout]) - set(uniques)
        assert (len(uniques), set()) == (len(set(uniques)), set(uniques) - set(expected[rollout]))
        assert not missing or eventually(lambda: child.is_marked(rollout))  # noqa: B023
        assert rollout in spoiled or not (missing or child.is_marked(rollout))
