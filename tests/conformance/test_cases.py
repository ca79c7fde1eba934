"""What the reference did with each case, we do too; where we differ on purpose: test_divergences.py."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conformance import corpus

COMPARED = [case for case in corpus.all_cases() if corpus.is_ours(case) and case.row is None]


@pytest.mark.parametrize("case", COMPARED, ids=lambda case: case.id)
def test_the_case_gives_what_the_reference_gave(case: corpus.Case) -> None:
    expected = corpus.results("expected", case.topic)[case.spec["name"]]
    found = corpus.differences(expected, corpus.outcome(case))
    unmet = corpus.UNKNOWN.get(case.spec["name"])
    assert ([] if unmet is None else [unmet]) == [difference.partition(": ")[0] for difference in found], found


def test_no_case_is_left_out_unnoticed() -> None:
    compared = Counter(case.spec["kind"] for case in COMPARED)
    left_out = Counter(case.spec["kind"] for case in corpus.all_cases() if not corpus.is_ours(case))
    ours = sum(corpus.is_ours(case) and case.row is not None for case in corpus.all_cases())
    assert {
        "compared": {
            "exchange": 842,
            "store_read": 74,
            "attach": 121,
            "clear": 2,
            "correlation": 19,
            "staging": 190,
        },
        "left out": {},
        "our own values": 286,
    } == {"compared": dict(compared), "left out": dict(left_out), "our own values": ours}
