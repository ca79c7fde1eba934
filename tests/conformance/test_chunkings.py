"""However the bytes of an answer are cut into messages, its record is the same, and its client gets the same bytes."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from tests.conformance import corpus
from tests.conformance.run_cases import driver

SIZES = (1, 2, 3, 7, 64)
BOUND_TO_THEIR_MESSAGES = {"raise", "park", "messages", "split"}
"""What makes a case one about messages: where the application raises, waits, or cuts in a way of its own."""


def may_be_cut(case: corpus.Case) -> bool:
    app = case.spec.get("app") or {}
    return (
        corpus.is_ours(case)
        and case.spec["kind"] == "exchange"
        and "steps" not in case.spec
        and "client" not in case.spec
        and not BOUND_TO_THEIR_MESSAGES & set(app)
        and 1 < size_of(app) < 50_000
    )


def size_of(app: dict[str, Any]) -> int:
    return sum(len(driver.to_bytes(chunk)) for chunk in app.get("chunks", []))


CUT = [
    (case, SIZES[number % len(SIZES)])
    for number, case in enumerate(case for case in corpus.all_cases() if may_be_cut(case))
]


def test_most_exchanges_are_cut() -> None:
    exchanges = [case for case in corpus.all_cases() if corpus.is_ours(case) and case.spec["kind"] == "exchange"]
    assert len(CUT) > 0.8 * len(exchanges)


@pytest.mark.parametrize(("case", "size"), CUT, ids=lambda value: getattr(value, "id", value))
def test_the_record_does_not_depend_on_the_cuts(case: corpus.Case, size: int) -> None:
    whole = case.spec["app"]
    size = max(size, size_of(whole) // 2000)
    cut = replace(case, spec={**case.spec, "app": {**whole, "split": size}})
    folder = "expected" if case.row is None else "ours"
    entry = copy.deepcopy(corpus.results(folder, case.topic)[case.spec["name"]])
    outcome = corpus.outcome(cut)
    for result in (entry, outcome):
        for rollout in result["rollouts"].values():
            for record in rollout["records"]:
                del record["latency_ttft_ms"]
    assert corpus.differences(entry["rollouts"], outcome["rollouts"]) == []
    assert entry["steps"][0]["client"]["same_as_app"] == outcome["steps"][0]["client"]["same_as_app"]
