"""What a terminal is told: text that cannot harm it, colour only where it is wanted, tables that fit its width."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

MISSING = "-"
"""What stands in a table for a value that is not known."""

_STYLES = {"bold": "1", "dim": "2", "red": "31", "yellow": "33", "green": "32"}
_DEFAULT_COLUMNS = 80
_LEAST_COLUMNS = 40
_MEASURED_ROWS = 200
_MAX_CELL = 500
_GAP = "  "


def harmless(text: str) -> str:
    """Text that comes from captured data, for one line of a terminal.

    Everything that moves a cursor, breaks a line, turns the direction of writing or cannot be seen at all is shown
    as a Python escape.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def display_width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def fit(text: str, columns: int) -> str:
    """The text, cut with an ellipsis where it is wider than so many columns."""
    if display_width(text) <= columns:
        return text
    kept = ""
    for c in text:
        if display_width(kept + c) > columns - 1:
            break
        kept += c
    return kept + "…"


class Output:
    """Where the results of a command go.

    Args:
        stream: the standard output, if nothing else is given.
        columns: the width that tables and paragraphs keep to; else that of the terminal, or 80.
    """

    def __init__(self, stream: TextIO | None = None, columns: int | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._colour = (
            self._stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
        )
        if columns is None:
            columns = shutil.get_terminal_size((_DEFAULT_COLUMNS, 24)).columns
        self.columns = max(columns, _LEAST_COLUMNS)

    def line(self, text: str = "") -> None:
        """Write one line."""
        self._stream.write(text + "\n")

    def paragraph(self, text: str, indent: str = "") -> None:
        """Write text of our own, broken to the width; lines after the first are indented."""
        wrapped = textwrap.wrap(
            text, self.columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        for line in wrapped:
            self.line(line)

    def style(self, text: str, style: str | None) -> str:
        """The text in a colour or weight, where colours are wanted."""
        if style is None or not self._colour or not text:
            return text
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        title: its heading.
        right: whether its cells stand to the right, as numbers do.
        least: how narrow it may become when the table is too wide; None keeps its cells whole.
    """

    title: str
    right: bool = False
    least: int | None = None


class Table:
    """A table of any number of rows, printed as they come.

    The widths are those of the first rows; memory does not grow with the table. Call `finish` after the last row.
    """

    def __init__(self, output: Output, columns: Sequence[Column]) -> None:
        self._output = output
        self._columns = columns
        self._widths: list[int] | None = None
        self._waiting: list[tuple[Sequence[str], str | None]] = []

    def row(self, cells: Sequence[str], style: str | None = None) -> None:
        """Add a row, one cell a column; a row of a single cell spans the whole table."""
        cells = [harmless(cell[:_MAX_CELL]) for cell in cells]
        if self._widths is not None:
            self._print(cells, style)
            return
        self._waiting.append((cells, style))
        if len(self._waiting) >= _MEASURED_ROWS:
            self.finish()

    def finish(self) -> None:
        """Print what still waits for the widths to be known."""
        if self._widths is None:
            self._widths = self._measure(cells for cells, _ in self._waiting)
            self._print([column.title for column in self._columns], "bold")
        for cells, style in self._waiting:
            self._print(cells, style)
        self._waiting = []

    def _measure(self, rows: Iterable[Sequence[str]]) -> list[int]:
        widths = [display_width(column.title) for column in self._columns]
        for cells in rows:
            if len(cells) == len(widths):
                widths = [max(width, display_width(cell)) for width, cell in zip(widths, cells, strict=True)]
        room = self._output.columns - len(_GAP) * (len(widths) - 1)
        while (excess := sum(widths) - room) > 0:
            cuttable = [
                i for i, column in enumerate(self._columns) if column.least is not None and widths[i] > column.least
            ]
            if not cuttable:
                break
            widest = max(cuttable, key=lambda i: widths[i])
            least = self._columns[widest].least or 1
            others = [widths[i] for i in cuttable if i != widest]
            widths[widest] -= max(1, min(excess, widths[widest] - max(least, max(others, default=0))))
        return widths

    def _print(self, cells: Sequence[str], style: str | None) -> None:
        output = self._output
        if len(cells) != len(self._columns):
            output.line(output.style(fit(cells[0], output.columns), style))
            return
        texts = []
        for column, width, cell in zip(self._columns, self._widths or (), cells, strict=True):
            text = cell if column.least is None else fit(cell, width)
            space = " " * (width - display_width(text))
            texts.append(space + text if column.right else text + space)
        output.line(output.style(_GAP.join(texts).rstrip(), style))


def seconds(milliseconds: float | None) -> str:
    """A duration for a table."""
    if milliseconds is None:
        return MISSING
    return f"{milliseconds / 1000:.2f}s" if milliseconds < 1_000_000 else f"{milliseconds / 1000:.0f}s"


def count(value: int | None) -> str:
    """A number for a table."""
    return MISSING if value is None else str(value)


def plural(number: int, noun: str) -> str:
    """`1 call`, `2 calls`, with the thousands kept apart."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(number: int) -> str:
    """A number of bytes for a person."""
    value = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
