from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gym_jsonl import reader
from otel_gym_jsonl.errors import DamagedRecordError, OtelGymError
from otel_gym_jsonl.reader import LineTooLongError, iter_records, read, read_available


def file(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "r0.capture.jsonl"
    path.write_bytes(content)
    return path


def test_a_missing_file_reads_as_empty(tmp_path: Path) -> None:
    path = tmp_path / "none" / "r0.capture.jsonl"
    assert ([], ([], 0), []) == (read(path), read_available(path), list(iter_records(path)))


def test_every_line_is_a_record_with_its_index_and_its_number(tmp_path: Path) -> None:
    path = file(tmp_path, b'{"a":1}\n\n  \t\n{"b":2}\r\n\x0b{"c":3}\x0c\n')
    assert [(0, 1, {"a": 1}), (1, 4, {"b": 2}), (2, 5, {"c": 3})] == [
        (line.index, line.number, line.record) for line in iter_records(path)
    ]


@pytest.mark.parametrize(
    ("content", "damage"),
    [
        (b"[1]", "a JSON array where an object is expected"),
        (b'"text"', "a JSON text where an object is expected"),
        (b"5", "a JSON number where an object is expected"),
        (b"null", "a JSON null where an object is expected"),
        (b"true", "a JSON boolean where an object is expected"),
        (b'{"a": NaN}', ""),
        (b'{"a": "\xff"}', ""),
        (b'{"a": "\\ud83d"}', ""),
        (b'{"a": 1', " at character 8"),
        (b'{"a":1}{"b":2}', ""),
        (b'\xef\xbb\xbf{"a":1}', "it begins with the byte 0xef, as no JSON does"),
        (b"\0\0\0\0", "it begins with zero bytes, as a crash of the machine leaves them"),
        (b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}", ""),
    ],
)
def test_a_damaged_line_says_why_and_costs_only_itself(tmp_path: Path, content: bytes, damage: str) -> None:
    lines = list(iter_records(file(tmp_path, b'{"a":1}\n' + content + b'\n{"b":2}\n')))
    assert ([(0, {"a": 1}), (1, None), (2, {"b": 2})], 2) == (
        [(line.index, line.record) for line in lines],
        lines[1].number,
    )
    assert damage in str(lines[1].damage)
    assert "line 1" not in str(lines[1].damage)
    assert ([(0, {"a": 1}), (2, {"b": 2})], 1) == read_available(tmp_path / "r0.capture.jsonl")


RECORD = (
    '{"model_call_id":"7","n":null,"t":true,"x":-12.5e+3,"s":"é€\U0001f600\\u00e9\\n\\"\\ud83d\\ude80","l":[1,2,[]],"o":{}}'
).encode()


def test_a_record_cut_anywhere_is_torn_with_a_later_record_behind_it_or_none(tmp_path: Path) -> None:
    for length in range(1, len(RECORD)):
        torn = RECORD[:length]
        for content in (torn, torn + b"\n" + RECORD + b"\n"):
            first, *rest = iter_records(file(tmp_path, content))
            assert (True, None, length) == (first.torn, first.record, first.size), torn
            assert (
                f"cut off in mid-write: unexpected end of data at character {len(torn.decode(errors='ignore')) + 1:,}"
                == (first.damage)
            )
            assert [(False, True)] * len(rest) == [(line.torn, line.record is not None) for line in rest]


@pytest.mark.parametrize(
    "damaged",
    [
        b"garbage",
        b'{"a" 1',
        b'{"a":1,}',
        b'{"a":1}}',
        b'{"a":1}{"a":',
        b'{"a":"\x01"',
        b'{"a":"\xff',
        b'{"a":"\xe2\x82"}',
        b"[1",
        b'"a',
        b"\0\0",
        b'{"a":1\0\0\0',
    ],
)
def test_what_no_more_bytes_could_complete_is_damaged_not_torn(tmp_path: Path, damaged: bytes) -> None:
    [line] = iter_records(file(tmp_path, damaged + b"\n"))
    assert (False, None, False) == (line.torn, line.record, str(line.damage).startswith("cut off"))


def test_a_torn_last_line_costs_only_itself(tmp_path: Path) -> None:
    lines = list(iter_records(file(tmp_path, b'{"a":1}\n{"b":')))
    assert [({"a": 1}, True), (None, False)] == [(line.record, line.ended) for line in lines]
    assert str(lines[1].damage).startswith("cut off in mid-write: ")


def test_a_whole_last_line_without_its_newline_is_a_record(tmp_path: Path) -> None:
    [line] = iter_records(file(tmp_path, b'{"a":1}'))
    assert ({"a": 1}, False, 7) == (line.record, line.ended, line.size)


def test_a_strict_read_gives_every_json_value_as_the_reference_does(tmp_path: Path) -> None:
    assert [[1], None, {"a": 1.8446744073709552e19}] == read(
        file(tmp_path, b'[1]\nnull\n{"a": 18446744073709551616}\n')
    )


def test_a_strict_read_names_the_file_and_the_line_of_the_damage(tmp_path: Path) -> None:
    path = file(tmp_path, b'{"a":1}\n\n{broken\n')
    with pytest.raises(DamagedRecordError) as caught:
        read(path)
    assert (path, 3, True, True) == (
        caught.value.path,
        caught.value.line_number,
        isinstance(caught.value, OtelGymError),
        isinstance(caught.value.__cause__, json.JSONDecodeError),
    )
    assert f"{path}, line 3 is no capture record" in str(caught.value)


def by_splitting(content: bytes) -> list[tuple[int, int, Any]]:
    found: list[tuple[int, int, Any]] = []
    for number, text in enumerate(content.split(b"\n"), 1):
        if text.strip():
            try:
                value = orjson.loads(text.strip())
            except ValueError:
                value = None
            found.append((len(found), number, value if isinstance(value, dict) else None))
    return found


@settings(deadline=None)
@given(
    content=st.lists(
        st.sampled_from([b"\n", b"\n", b"\r", b" ", b"\0", b'{"a":1}', b'{"b":"\xe2\x80\xa8"}', b"[", b"{", b"x", b'"'])
    ).map(b"".join),
    piece=st.integers(1, 9),
)
def test_lines_longer_than_a_piece_read_like_any_other(content: bytes, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
        patch.setattr(reader, "_PIECE", piece)
        lines = [(line.index, line.number, line.record) for line in iter_records(file(Path(directory), content))]
    assert by_splitting(content) == lines


def test_a_line_of_many_megabytes_is_a_record(tmp_path: Path) -> None:
    text = "x" * (48 * 1024 * 1024)
    [first, second] = iter_records(file(tmp_path, b'{"a":"' + text.encode() + b'"}\n{"b":2}\n'))
    assert (text, {"b": 2}) == (first.value["a"], second.record)


def test_a_long_run_of_zero_bytes_is_passed_over_without_being_kept(tmp_path: Path) -> None:
    path = file(tmp_path, b'{"a":1}\n')
    with path.open("r+b") as opened:
        opened.truncate(256 * 1024 * 1024)
        opened.seek(0, 2)
        opened.write(b'\n{"b":2}\n')
    tracemalloc.start()
    try:
        lines = [(line.number, line.record) for line in iter_records(path)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert ([(1, {"a": 1}), (2, None), (3, {"b": 2})], True) == (lines, peak < 16 * 1024 * 1024)


@pytest.mark.parametrize("length", [100, 3 * 1024 * 1024])
def test_a_line_beyond_the_callers_bound_is_not_parsed(tmp_path: Path, length: int) -> None:
    long = b'{"a":"' + b"x" * (length - 8) + b'"}'
    path = file(tmp_path, long + b"\n" + long[:-3] + b'"}\n')
    lines = list(iter_records(path, max_line_bytes=length - 1))
    assert [(length, True, None), (length - 1, False, {"a": "x" * (length - 9)})] == [
        (line.size, isinstance(line.error, LineTooLongError), line.record) for line in lines
    ]


@contextmanager
def locked_elsewhere(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process holds the exclusive lock until it gets a line, then appends a record and leaves."""
    program = (
        "import fcntl, sys\n"
        "f = open(sys.argv[1], 'ab')\n"
        "fcntl.flock(f, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.readline()\n"
        "f.write(b'{\"late\":1}\\n'); f.flush()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        try:
            yield process
        finally:
            if process.poll() is None:
                process.communicate(b"\n")


def test_a_reader_waits_for_an_append_that_is_under_way(tmp_path: Path) -> None:
    path = file(tmp_path, b'{"a":1}\n{"hal')
    with locked_elsewhere(path) as process:
        lines = iter_records(path)
        with pytest.raises(TimeoutError, match="stayed locked"):
            next(iter_records(path, lock_timeout_s=0.1))
        process.communicate(b"\n")
        assert [{"a": 1}, None] == [line.record for line in lines]
    assert b'{"a":1}\n{"hal{"late":1}\n' == path.read_bytes()


def test_a_reader_that_takes_its_time_keeps_no_writer_waiting(tmp_path: Path) -> None:
    path = file(tmp_path, b'{"a":1}\n{"b":2}\n')
    lines = iter_records(path)
    first = next(lines).record
    with path.open("ab") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX | fcntl.LOCK_NB)
        writer.write(b'{"c":3}\n')
    assert ({"a": 1}, [{"b": 2}]) == (first, [line.record for line in lines])


def test_a_file_cut_below_the_length_that_was_seen_ends_there(tmp_path: Path) -> None:
    path = file(tmp_path, (b'{"a":"' + b"x" * 100_000 + b'"}\n') * 40)
    lines = iter_records(path)
    next(lines)
    with path.open("r+b") as opened:
        opened.truncate(0)
    assert len(list(lines)) < 39
