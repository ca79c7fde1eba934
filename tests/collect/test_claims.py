from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.collect import claims
from otel_gym.collect.claims import Claim, claim_of
from otel_gym.collect.pairs import PairSet
from otel_gym.collect.tasks import Run, runs
from otel_gym.rollouts.ids import maybe_rollout_id_from_run_body

Pairs = Iterable[tuple[int, int]]


def claim(pairs: Pairs = (), names: Iterable[str] = ()) -> Claim:
    made = Claim()
    for pair in pairs:
        made.add_pair(pair)
    for name in names:
        made.add_name(name)
    return made


def again(one: Claim) -> Claim:
    """As another process reads it."""
    return Claim.of(json.loads(json.dumps(one.told())))


SOME = st.sets(st.tuples(st.integers(0, 12), st.integers(0, 2)), max_size=12)


@given(SOME, SOME)
def test_two_claims_share_a_rollout_exactly_if_their_sets_do(
    one: set[tuple[int, int]], two: set[tuple[int, int]]
) -> None:
    ids = {f"{task}-{rollout}" for task, rollout in one & two}
    shared = claim(one).shared_with(again(claim(two)))
    assert shared in ids if ids else shared is None


def test_tasks_in_a_row_are_told_as_one_stretch() -> None:
    many = claim((task, rollout) for task in range(100_000) for rollout in range(2))
    assert {"tasks": {"0": [[0, 99_999]], "1": [[0, 99_999]]}, "ids": []} == many.told()


SAME = [("3-1", "3-1-a2"), ("mine", "mine-a7"), ("mine-a1", "mine-a2"), ("x-a1-a2", "x")]
OTHER = [("3-1", "3-2"), ("mine", "mine-b"), ("3-1", "03-1"), ("x-a0", "x")]


@pytest.mark.parametrize(("one", "two"), SAME)
def test_attempts_of_one_rollout_are_one(one: str, two: str) -> None:
    assert claim(names=[one]).shared_with(again(claim(names=[two]))) is not None


@pytest.mark.parametrize(("one", "two"), OTHER)
def test_names_that_no_attempt_makes_equal_are_two(one: str, two: str) -> None:
    assert claim(names=[one]).shared_with(again(claim(names=[two]))) is None


def test_an_id_of_its_own_may_be_that_of_a_pair() -> None:
    assert "3-1" == claim([(3, 1)]).shared_with(again(claim(names=["3-1-a4"])))


def test_what_is_too_much_to_be_told_is_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "MOST_PIECES", 3)
    scattered = claim([(0, 0), (2, 0), (4, 0), (6, 0)])
    assert {"everything": True} == scattered.told()
    assert "9-0" == claim([(9, 0)]).shared_with(again(scattered))
    assert claim().shared_with(again(scattered)) is None
    assert "any" == scattered.shared_with(again(scattered))


@pytest.mark.parametrize(
    "told", [None, 7, [], {}, {"tasks": {"x": []}, "ids": []}, {"tasks": {"0": [["a", 1]]}, "ids": []}]
)
def test_what_cannot_be_understood_is_everything(told: object) -> None:
    assert Claim.of(told).everything


LINES: list[dict[str, Any] | str] = [
    {"prompt": "p"},
    {"_ng_task_index": 40},
    '{"\\u005fng_task_index": 50}',
    {"_ng_task_index": 60, "_ng_rollout_index": 3},
    {"_ng_rollout_id": "mine"},
    {"_ng_task_index": -1},
    "{broken _ng_",
    "",
    {"say": "\u00e9 \\u"},
]


@pytest.mark.parametrize(("limit", "repeats"), [(None, 1), (None, 3), (4, 2)])
def test_a_claim_has_all_that_an_input_runs_but_what_is_finished(
    tmp_path: Path, limit: int | None, repeats: int
) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in LINES))
    finished = PairSet()
    finished.add((0, 0))
    found, tasks = claim_of(path, limit, repeats, finished)
    wanted = [run for run in runs(path, limit, repeats) if isinstance(run, Run) and run.pair not in finished]
    ids = {maybe_rollout_id_from_run_body(run.row) for run in wanted}
    assert ids == {rollout_id for rollout_id in ids if found.shared_with(claim(names=[str(rollout_id)]))}
    expected = claim(names=map(str, ids)).told()
    assert expected == found.told()
    assert (4 if limit else 8) == tasks
