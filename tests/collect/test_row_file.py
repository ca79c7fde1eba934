from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.collect.errors import BusyError
from otel_gym.collect.row_file import RowFile

LINES = [b'{"n": %d, "t": "%s"}\n' % (n, b"x" * (n * 7)) for n in range(6)]
WHOLE = b"".join(LINES)


@given(st.integers(0, len(WHOLE)))
def test_any_cut_costs_at_most_the_line_that_it_is_in(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "rows.jsonl"
    path.write_bytes(WHOLE[:cut])
    whole = WHOLE[:cut].count(b"\n")
    with contextlib.closing(RowFile(path)) as file:
        torn = file.repair()
    kept = path.read_bytes().splitlines(keepends=True)
    if WHOLE[cut : cut + 1] == b"\n":  # only the newline was missing
        whole += 1
        assert not torn
    assert LINES[:whole] == kept
    assert torn == (sum(map(len, LINES[:whole])) < cut)


def test_a_torn_line_longer_than_a_look_is_found_to_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"n": 1}\n{"t": "' + b"x" * 3_000_000)
    with contextlib.closing(RowFile(path)) as file:
        assert file.repair()
    assert b'{"n": 1}\n' == path.read_bytes()


def test_one_file_has_one_collection(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with contextlib.closing(RowFile(path)), pytest.raises(BusyError, match="another collection writes into this file"):
        RowFile(path)
    RowFile(path).close()


def test_lines_are_taken_out_and_the_lock_goes_with_the_name(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(WHOLE)
    path.chmod(0o640)
    (tmp_path / ".rows.jsonl.tidied").write_bytes(b"what a killed process had begun")
    with contextlib.closing(RowFile(path)) as file:
        places = [place for place, _ in file.rows()]
        file.drop({places[0], places[4]})
        assert LINES[1:4] + LINES[5:] == path.read_bytes().splitlines(keepends=True)
        with pytest.raises(BusyError):
            RowFile(path)
        file.append(b'{"more": 1}\n')
    assert path.read_bytes().endswith(LINES[5] + b'{"more": 1}\n')
    assert (["rows.jsonl"], 0o640) == ([entry.name for entry in tmp_path.iterdir()], path.stat().st_mode & 0o777)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.jsonl"
    with contextlib.closing(RowFile(path)) as file:
        file.append(LINES[0])
        monkeypatch.setattr(os, "fsync", _no_space)
        with pytest.raises(OSError, match="No space"):
            file.append(LINES[1])
    assert LINES[0] == path.read_bytes()


def _no_space(fd: int) -> None:
    raise OSError(28, "No space left on device")


def test_a_line_that_is_no_row_is_passed_on_as_none(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\nbroken\n[]\n{"b": 2}\n')
    with contextlib.closing(RowFile(path)) as file:
        assert [(0, {"a": 1}), (9, None), (16, None), (19, {"b": 2})] == list(file.rows())
