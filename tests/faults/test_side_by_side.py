"""Files that are synced side by side: what one of them suffers is its own affair."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.faults.conftest import Start
from tests.faults.processes import Process, asked, eventually, served

ROLLOUTS = [f"r{number}" for number in range(8)]


def together(child: Process, turn: int, *rules: str) -> None:
    """A call of each rollout, which wait for the only thread until all are there; then the disk fails by the rules."""
    child.disk("fsync holding hang 400 0 1")
    holding = child.begin("calls", calls=[asked("holding", turn)])
    assert eventually(lambda: child.store.path_for("holding").exists() and len(child.uniques("holding")) == turn)
    group = child.begin("calls", calls=[asked(rollout, turn) for rollout in ROLLOUTS])
    child.disk("fsync none hang 0 0 0", *rules)
    served(holding)
    served(group)


def state(child: Process, rollout: str) -> tuple[list[str], bool]:
    """What is on disk of a rollout, and whether it is marked."""
    return child.uniques(rollout), child.is_marked(rollout)


@pytest.mark.parametrize("first", [1, 2], ids=["new", "known"])
def test_a_file_that_cannot_be_synced_is_a_marked_loss_and_the_only_one(
    start: Start, disk_faults: Path, first: int
) -> None:
    child = start(library=disk_faults, writer_threads=1)
    for turn in range(1, first):
        together(child, turn)
    together(child, first, f"fsync r3.capture fail {errno.EIO} 0 -1")
    before = [str(turn) for turn in range(1, first)]
    assert [([*before, str(first)], False) for _ in ROLLOUTS[1:]] == [
        state(child, rollout) for rollout in ROLLOUTS if rollout != "r3"
    ]
    assert (before, True) == state(child, "r3")


def test_an_error_that_passes_is_tried_again_and_no_line_is_there_twice(start: Start, disk_faults: Path) -> None:
    child = start(library=disk_faults, writer_threads=1)
    together(child, 1)
    child.disk("fsync holding hang 400 0 1")
    holding = child.begin("calls", calls=[asked("holding", 2)])
    assert eventually(lambda: len(child.uniques("holding")) == 2)
    group = child.begin("calls", calls=[asked(rollout, number) for number in (2, 3, 4) for rollout in ROLLOUTS])
    child.disk("fsync none hang 0 0 0", f"fsync r3.capture fail {errno.EIO} 0 1")
    served(holding)
    served(group)
    assert [(["1", "2", "3", "4"], False)] * 8 == [
        (sorted(child.uniques(rollout)), child.is_marked(rollout)) for rollout in ROLLOUTS
    ]


def test_a_file_whose_sync_hangs_holds_none_of_the_others(start: Start, disk_faults: Path) -> None:
    child = start(library=disk_faults, writer_threads=1, write_timeout_s=1)
    together(child, 1)
    together(child, 2, "fsync r3.capture hang 20000 0 1")
    assert eventually(lambda: child.is_marked("r3"))
    others = [rollout for rollout in ROLLOUTS if rollout != "r3"]
    child.serve(*(asked(rollout, 3) for rollout in others))
    assert [(["1", "2", "3"], False)] * 7 == [state(child, rollout) for rollout in others]


def test_where_the_directory_cannot_be_synced_new_files_are_marked_and_known_ones_are_not(
    start: Start, disk_faults: Path
) -> None:
    child = start(library=disk_faults, writer_threads=1)
    child.serve(*(asked(rollout, 1) for rollout in ROLLOUTS[:4]), asked("holding", 0))
    child.disk("fsync holding hang 400 0 1")
    holding = child.begin("calls", calls=[asked("holding", 1)])
    assert eventually(lambda: len(child.uniques("holding")) == 2)
    group = child.begin("calls", calls=[asked(rollout, 2) for rollout in ROLLOUTS])
    child.disk("fsync none hang 0 0 0", f"fsync . fail {errno.EIO} 0 -1")
    served(holding)
    served(group)
    assert [(["1", "2"], False)] * 4 + [([], True)] * 4 == [state(child, rollout) for rollout in ROLLOUTS]
    child.disk()
    child.serve(*(asked(rollout, 3) for rollout in ROLLOUTS))
    assert [["1", "2", "3"]] * 4 + [["3"]] * 4 == [child.uniques(rollout) for rollout in ROLLOUTS]


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EAGAIN])
@pytest.mark.parametrize("taken", [0, 3])
def test_what_the_system_does_not_take_is_synced_one_by_one(
    start: Start, disk_faults: Path, taken: int, error: int
) -> None:
    child = start(library=disk_faults, writer_threads=1)
    together(child, 1, f"io_submit capture.jsonl fail {error} {taken} -1", f"fsync r5.capture fail {errno.EIO} 0 -1")
    others = [rollout for rollout in ROLLOUTS if rollout != "r5"]
    assert [(["1"], False)] * 7 + [([], True)] == [state(child, rollout) for rollout in (*others, "r5")]
