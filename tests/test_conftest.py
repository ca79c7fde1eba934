"""The suite's own rule about tests that are left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
import pytest

def test_left_out():
    pytest.skip("no such server")

@pytest.mark.skipif(True, reason="no such library")
def test_left_out_by_mark(): ...

@pytest.mark.platform_only
def test_other_platform():
    pytest.skip("needs another kernel")

@pytest.mark.xfail(strict=True)
def test_known_fault():
    assert False

def test_runs(): ...
"""


MODULE = """
import pytest
pytest.importorskip("no_such_library")
def test_never_reached(): ...
"""


def outcome(folder: Path, suite: str, *, ci: str) -> str:
    """Pytest's own last line about such a suite under this very conftest, without the time."""
    (folder / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text())
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  platform_only: see CONTRIBUTING.md\n")
    (folder / "test_it.py").write_text(suite)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "CI": ci},
    )
    return done.stdout.strip().splitlines()[-1].partition(" in ")[0]


@pytest.mark.parametrize(
    ("suite", "ci", "expected"),
    [
        (SUITE, "", "1 passed, 3 skipped, 1 xfailed"),
        (SUITE, "true", "1 failed, 1 passed, 1 skipped, 1 xfailed, 1 error"),  # a mark skips in the set-up
        (MODULE, "", "1 skipped"),
        (MODULE, "true", "1 error"),
    ],
)
def test_a_test_that_is_left_out_fails_only_in_ci(tmp_path: Path, suite: str, ci: str, expected: str) -> None:
    """In CI everything that tests need must be there; only a test marked `platform_only` may be left out."""
    assert expected == outcome(tmp_path, suite, ci=ci)
