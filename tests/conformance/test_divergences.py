"""Where we are better than the reference on purpose: our own values, written from the rules of divergences.md."""

from __future__ import annotations

import copy
import fnmatch
from typing import Any

import pytest

from tests.conformance import corpus

DIVERGENT = [case for case in corpus.all_cases() if corpus.is_ours(case) and case.row is not None]
NOTES = ("row", "free")
"""Fields of our values that say something about the case and are no part of its outcome."""


def blank(outcome: Any, path: list[str | int]) -> None:
    """Take the value out of an outcome that a rule leaves free."""
    *parents, last = path
    for part in parents:
        outcome = outcome[part]
    outcome[last] = "<free>"


@pytest.mark.parametrize("case", DIVERGENT, ids=lambda case: f"{case.row}-{case.id}")
def test_the_case_gives_what_the_rule_says(case: corpus.Case) -> None:
    entry = corpus.results("ours", case.topic)[case.spec["name"]]
    expected = copy.deepcopy({key: value for key, value in entry.items() if key not in NOTES})
    actual = corpus.outcome(case)
    for path in entry.get("free", []):
        blank(expected, path)
        blank(actual, path)
    assert corpus.differences(expected, actual) == []


def test_every_matched_case_has_a_value_of_our_own_and_no_other_case_has_one() -> None:
    written = {
        (path.stem, name, entry["row"])
        for path in (corpus.HERE / "ours").glob("*.json")
        for name, entry in corpus.results("ours", path.stem).items()
    }
    assert {(case.topic, case.spec["name"], case.row) for case in DIVERGENT} == written


def test_every_glob_matches_a_case_but_the_one_that_the_corpus_kept_back() -> None:
    names = [case.spec["name"] for case in corpus.all_cases()]
    unmatched = [glob for glob in corpus.divergences() if not any(fnmatch.fnmatchcase(name, glob) for name in names)]
    assert ["prefix-method-PUT*"] == unmatched
