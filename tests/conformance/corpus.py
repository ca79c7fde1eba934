"""The cases of the corpus, and which of them our own values stand for."""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.conformance import run_cases

HERE = Path(__file__).resolve().parent
KINDS = ("exchange", "store_read", "attach", "clear", "correlation", "staging")
"""The kinds that the adapter has functions for; the others belong to parts that are not built."""

CONTRADICTED = {"correlation-explicit-invalid.p2": 25, "prefix-dots-in-id.p2": 24}
"""Cases that no glob names although a row's rule decides them: one item of the first is the id `a\\n`, which row 25
calls invalid; the id of the second is `...`, and by row 24 an id that begins with a dot never becomes a file."""


UNKNOWN = {"attach-tools-and-sandbox.p1": "$.full_sha256.ng_agent_observations"}
"""What cannot be met, by case: the only sandbox record of the corpus. Beside the fields that it shows the reference
gives it others, all null, whose names no public document tells; so the hash of the whole differs."""


@dataclass(frozen=True)
class Case:
    """One case: its topic (the file's stem), its description, and the row of `divergences.md` that speaks of it."""

    topic: str
    spec: dict[str, Any]
    row: int | None

    @property
    def id(self) -> str:
        return f"{self.topic}::{self.spec['name']}"


@cache
def divergences() -> dict[str, int]:
    """Glob → row of `divergences.md`."""
    rows = {}
    for line in (HERE / "divergences.txt").read_text(encoding="utf-8").splitlines():
        glob, _, row = line.partition("#")
        if glob.strip():
            rows[glob.strip()] = int(row)
    return rows


def row_of(name: str) -> int | None:
    rows = (row for glob, row in divergences().items() if fnmatch.fnmatchcase(name, glob))
    return next(rows, CONTRADICTED.get(name))


@cache
def all_cases() -> tuple[Case, ...]:
    return tuple(
        Case(path.stem, spec, row_of(spec["name"]))
        for path in sorted(HERE.glob("cases/*.json"))
        for spec in run_cases.load_cases(path)
    )


def is_ours(case: Case) -> bool:
    """Whether the adapter can run a case today."""
    return case.spec["kind"] in KINDS


@cache
def results(folder: str, topic: str) -> dict[str, dict[str, Any]]:
    """The outcomes in `expected/` (the reference's) or `ours/`, by case name."""
    path = HERE / folder / f"{topic}.json"
    if not path.exists():
        return {}
    return {result["name"]: result for result in json.loads(path.read_text(encoding="utf-8"))["results"]}


def outcome(case: Case) -> dict[str, Any]:
    """What our implementation does with a case, in the form that the result files have."""
    from tests.conformance import adapter

    result: dict[str, Any] = json.loads(run_cases.driver.compact_json(run_cases.run_case(case.spec, adapter)))
    return result


def differences(expected: dict[str, Any], actual: dict[str, Any]) -> list[str]:
    found: list[str] = run_cases.driver.strict_diff(expected, actual)
    return found
