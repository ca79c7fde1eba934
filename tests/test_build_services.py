"""Services are built once, anew when their files change, and not at all without Go."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.build_services import SERVICES

ROOT = Path(__file__).resolve().parent.parent
# Stands for the compiler: what it "builds" is the name of what it was asked for.
GO = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
echo "$3" > "$2"
grep -q broken main.go 2> /dev/null && echo "main.go:1: syntax error" >&2 && exit 1
exit 0
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the script needs of the project."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/build_services.py", tmp_path / "scripts")
    for name in SERVICES:
        shutil.copytree(ROOT / "services" / name, tmp_path / "services" / name)
    return tmp_path


def build(tree: Path, *names: str, go: bool = True) -> tuple[int, list[str], str]:
    """Exit code, services with what became of each, and stderr."""
    folder = tree / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "go").unlink(missing_ok=True)
    if go:
        (folder / "go").write_text(GO)
        (folder / "go").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "scripts/build_services.py", *names],
        cwd=tree,
        env={**os.environ, "PATH": f"{folder}:/usr/bin:/bin" if go else str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = [line.partition(" in ")[0].partition(" (")[0] for line in done.stdout.splitlines()]
    return done.returncode, lines, done.stderr


def test_both_are_built_and_then_left_alone(tree: Path) -> None:
    built = ["jaeger: building", "jaeger: built", "collector: building", "collector: built"]
    assert (0, built, "") == build(tree)
    assert "github.com/jaegertracing/jaeger/cmd/jaeger\n" == (tree / ".services/jaeger").read_text()
    assert (0, ["jaeger: there", "collector: there"], "") == build(tree, go=False)


def test_one_whose_files_have_changed_is_built_anew(tree: Path) -> None:
    build(tree)
    with (tree / "services/collector/go.mod").open("a") as versions:
        versions.write("// another version\n")
    assert (0, ["jaeger: there", "collector: building", "collector: built"], "") == build(tree)


def test_without_go_it_says_which_go_is_missing(tree: Path) -> None:
    expected = "jaeger: not built, and there is no `go` on PATH to build it\n"
    assert (2, [], f"{expected}install Go 1.26 or later, then: make services\n") == build(tree, go=False)


def test_a_build_that_fails_leaves_nothing_that_looks_built(tree: Path) -> None:
    (tree / "services/collector/main.go").write_text("broken")
    said = "main.go:1: syntax error\ncollector: go build ended with exit code 1\n"
    assert (1, ["collector: building"], said) == build(tree, "collector")
    assert not (tree / ".services/collector").exists()
    assert (1, ["collector: building"], said) == build(tree, "collector")


def test_a_service_that_there_is_not_is_a_wrong_use(tree: Path) -> None:
    assert (2, [], "no such service: jager; there are jaeger, collector\n") == build(tree, "jager")
