"""Child processes with disks that fail, built and ended by the fixtures."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import Process

SOURCE = Path(__file__).with_name("diskfaults.c")


@pytest.fixture(scope="session")
def disk_faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of `diskfaults.c`, built."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("diskfaults") / "diskfaults.so"
    flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", str(library), str(SOURCE), "-ldl", "-lpthread"], check=True)
    return library


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory for captures that a process without rights can reach, too."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        captures = Path(made) / "captures"
        captures.mkdir()
        captures.chmod(0o777)
        yield captures
        captures.chmod(0o777)


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as made:  # the path of a socket has to be short
        yield Path(made)


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts child processes; those that are still there in the end are killed."""
    started: list[Process] = []

    def begin(directory: Path = tmp_path / "captures", library: Path | None = None, **settings: Any) -> Process:
        started.append(Process(directory, library, **settings))
        return started[-1]

    yield begin
    for child in started:
        if child.process.poll() is None:
            child.process.kill()
        if child.process.stdin is not None and not child.process.stdin.closed:
            child.leave()
