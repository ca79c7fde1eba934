"""One run: where it writes, how much it does, what it found."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.disk import Disk
from benchmarks.meters import Side
from otel_gym import CaptureMiddleware, Settings
from otel_gym.asgi import App


class MissingRecordsError(AssertionError):
    """Not every call left its record: no figure of such a run means anything."""


@dataclass(frozen=True)
class Check:
    """A figure that has a target.

    Attributes:
        scenario: letter or name.
        what: the figure.
        value, limit, unit: what was measured, and what it may be.
        at_least: the limit is a floor; else a ceiling.
    """

    scenario: str
    what: str
    value: float
    limit: float
    unit: str
    at_least: bool = False

    @property
    def ok(self) -> bool:
        """Whether the target is met."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True)
class Comparison:
    """Bare and captured application, and the disk, under the same calls.

    Attributes:
        scenario, title: which calls.
        added_p50_ms: median over the rounds of what capture adds to the median call.
        pool_share: median over the rounds of captured calls/s ÷ lines/s of the disk's pool.
    """

    scenario: str
    title: str
    bare: Side
    captured: Side
    disk: Disk | None
    added_p50_ms: float
    pool_share: float | None


@dataclass(frozen=True)
class Outcome:
    """What a scenario gave; `notes` are figures without target."""

    comparisons: tuple[Comparison, ...] = ()
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bench:
    """Where and how much.

    Attributes:
        directory: on the disk to measure.
        scale: factor on all counts and times; 1 is the real thing.
    """

    directory: Path
    scale: float = 1.0

    def times(self, count: int, least: int = 1) -> int:
        """A count of things to do."""
        return max(least, round(count * self.scale))

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A directory of its own, gone afterwards."""
        path = Path(tempfile.mkdtemp(dir=self.directory))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def capture(app: App, directory: Path) -> CaptureMiddleware:
    """The same application, captured into a directory; the environment has no say."""
    return CaptureMiddleware(app, settings=Settings(observability_enabled=True, model_call_capture_dir=directory))


def captured_lines(directory: Path, prefix: str, calls: int) -> list[tuple[str, bytes]]:
    """(file, line) of each record of the rollouts that begin so, one of each file in turn.

    Raises:
        MissingRecordsError: there are not as many as calls were made, or a rollout is marked.
    """
    files = sorted(directory.glob(f"{prefix}*.capture.jsonl"))
    by_file = [[(path.name, line) for line in path.read_bytes().splitlines(keepends=True)] for path in files]
    lines = [entry for turn in itertools.zip_longest(*by_file) for entry in turn if entry is not None]
    marks = list(directory.glob(f"{prefix}*.capture.incomplete"))
    if len(lines) != calls or marks:
        raise MissingRecordsError(f"{calls} calls left {len(lines)} records and {len(marks)} marks in {directory}")
    return lines
