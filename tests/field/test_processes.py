"""Faults that people met elsewhere, about disks and processes: inputs 22 and 24 of the field page."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
UNSHARE = ("unshare", "--map-root-user", "--mount", "sh", "-c")
MOUNT = 'mount -t tmpfs -o size=32k tmpfs "$1" && shift && exec "$@"'


def run(what: str, directory: Path, *before: str) -> Any:
    command = [*before, sys.executable, "-m", "tests.field.children", what, str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout)


def assert_a_full_disk_costs_one_record(result: dict[str, Any]) -> None:
    assert [True] * 3 == result["served"]
    assert result["ends_on_a_whole_line"]
    assert ["0-0.capture.incomplete", "0-0.capture.jsonl"] == result["files"]
    assert [{"model": "m"}] * 2 == result["requests"]
    assert 1 == len(result["errors"])


def test_22_a_record_that_does_not_fit_is_cut_back_and_marked(tmp_path: Path) -> None:
    assert_a_full_disk_costs_one_record(run("size_limit", tmp_path))


@pytest.mark.platform_only
def test_22_a_full_file_system_loses_one_record_and_says_so(tmp_path: Path) -> None:
    if not shutil.which("unshare") or subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody but root mount a file system")
    assert_a_full_disk_costs_one_record(
        run("small_file_system", tmp_path, *UNSHARE, MOUNT, "sh", str(tmp_path)),
    )


def test_24_children_of_a_fork_write_records_of_their_own(tmp_path: Path) -> None:
    result = run("forks", tmp_path)
    assert ([True] * 3, ["0-0.capture.jsonl"]) == (result["served"], result["files"])
    assert 3 == len(set(result["ids"]))
