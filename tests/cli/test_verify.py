from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_gym.cli import capture_directory, main
from otel_gym.cli.findings import MEANING
from otel_gym.cli.inspection import Inspection
from tests.peak_memory import PEAK_KB
from tests.sample_records import capture, line, record

COMMAND = Path(sys.executable).parent / "otel-gym"
MB = 1024 * 1024


def verify(capsys: pytest.CaptureFixture[str], directory: Path) -> tuple[int, dict[str, Any]]:
    code = main(["verify", str(directory), "--json"])
    output = capsys.readouterr()
    return code, json.loads(output.out)


def found(shown: dict[str, Any]) -> list[tuple[str, int | None, str, str]]:
    return [(item["file"], item["line"], item["code"], item["severity"]) for item in shown["findings"]]


def test_the_real_command_names_each_damage_and_what_to_do(tmp_path: Path) -> None:
    twice = record()
    capture(tmp_path, "0-0", record(), b"\n", b"{broken\n", twice, twice, b'{"model_call_id": "0')
    (tmp_path / "0-0.capture.incomplete").touch()
    (tmp_path / "notes.txt").write_text("hi")
    result = subprocess.run([COMMAND, "verify", tmp_path], capture_output=True, text=True, check=False, timeout=60)
    lines = result.stdout.splitlines()
    assert (1, "") == (result.returncode, result.stderr)
    assert (
        [
            "0-0.capture.jsonl:3: damaged_line",
            "0-0.capture.jsonl:6: torn_line: cut off in mid-write",
            "0-0.capture.incomplete: incomplete",
            "notes.txt: foreign_file: 2 bytes",
            f"0-0.capture.jsonl:5: repeated_call: {twice['model_call_id']}, as in line 4",
            "",
        ]
        == [
            lines[0].rpartition(": ")[0],  # the rest are the decoder's words
            lines[1].rpartition(": ")[0],
            *lines[2:6],
        ]
    )
    assert "repeated_call: two lines have the same model_call_id, so sums count that call" in lines
    assert lines[-1].startswith("4 problems, 1 note: 1 rollout, 3 calls, ")
    assert max(map(len, lines[5:])) <= 80


def test_a_whole_directory_is_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture(tmp_path, "0-0", record(), record())
    capture(tmp_path, "0-1", record())
    (tmp_path / ".otel-gym-run-id").write_text("x")
    assert main(["verify", str(tmp_path)]) == 0
    output = capsys.readouterr()
    assert ("", True) == (output.err, output.out.startswith("complete: 2 rollouts, 3 calls, "))


@pytest.mark.parametrize(
    ("lines", "number", "code", "severity"),
    [
        ([b"[1]\n"], 1, "damaged_line", "problem"),
        ([b"{broken\n", record()], 1, "damaged_line", "problem"),
        ([b"\xef\xbb\xbf{}\n"], 1, "damaged_line", "problem"),
        ([record(), b"\0\0\0\0"], 2, "torn_line", "problem"),
        ([record(), b'{"a'], 2, "torn_line", "problem"),
        ([record(), line(record())[:100] + b"\n", record()], 2, "torn_line", "problem"),
        ([record(), line(record())[100:], record()], 2, "damaged_line", "problem"),
        ([record(), line(record())[:-1]], 2, "no_newline", "note"),
        ([record(status_code="abc")], 1, "no_call_in_line", "problem"),
        ([record(model_call_id="7")], 1, "no_call_id", "note"),
        ([b"{}\n"], 1, "no_call_id", "note"),
        ([], None, "no_records", "problem"),
        ([b"\n\n"], None, "no_records", "problem"),
    ],
)
def test_what_is_wrong_with_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[Any], number: int | None, code: str, severity: str
) -> None:
    capture(tmp_path, "0-0", *lines)
    got, shown = verify(capsys, tmp_path)
    assert [("0-0.capture.jsonl", number, code, severity)] == found(shown)
    assert (int(severity == "problem"), severity == "note", {code: MEANING[code]}) == (
        got,
        shown["complete"],
        shown["meaning"],
    )


def test_what_is_wrong_with_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copied = capture(tmp_path, "0-0", record()).read_bytes()
    capture(tmp_path, "0-1", copied)
    (tmp_path / "1-0.capture.jsonl").mkdir()
    os.mkfifo(tmp_path / "1-1.capture.jsonl")
    (tmp_path / "1-2.capture.jsonl").symlink_to("nowhere")
    capture(tmp_path, "2-0", record()).chmod(0o646)
    capture(tmp_path, "2-1", record()).chmod(0o444)
    (tmp_path / "3-0.capture.incomplete").write_text("why?")
    (tmp_path / "a b.capture.jsonl").touch()
    (tmp_path / ".capture.jsonl").touch()
    (tmp_path / ".otel-gym-collect.lock").touch()
    code, shown = verify(capsys, tmp_path)
    assert sorted(
        [
            (".capture.jsonl", None, "foreign_file", "note"),
            (".otel-gym-collect.lock", None, "collection_lock", "note"),
            ("0-1.capture.jsonl", 1, "copied_file", "problem"),
            ("1-0.capture.jsonl", None, "unreadable_file", "problem"),
            ("1-1.capture.jsonl", None, "unreadable_file", "problem"),
            ("1-2.capture.jsonl", None, "unreadable_file", "problem"),
            ("2-0.capture.jsonl", None, "open_permissions", "note"),
            ("2-1.capture.jsonl", None, "read_only", "note"),
            ("3-0.capture.incomplete", None, "incomplete", "problem"),
            ("3-0.capture.incomplete", None, "odd_marker", "note"),
            ("a b.capture.jsonl", None, "foreign_file", "note"),
        ],
        key=str,
    ) == sorted(found(shown), key=str)
    assert (1, 8, 5, 6) == (code, shown["rollouts"], shown["problems"], shown["notes"])


def test_odd_and_long_markers_are_markers_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture(tmp_path, "r" * 241, record())
    long = ["q" * 237 + ".capture.lost", "r" * 241 + ".capture.lost"]
    for name in (*long, "short.capture.lost"):
        (tmp_path / name).touch()
    (tmp_path / "0-0.capture.incomplete").mkdir()
    (tmp_path / "0-1.capture.incomplete").symlink_to("nowhere")
    _, shown = verify(capsys, tmp_path)
    assert [
        ("0-0.capture.incomplete", "incomplete", "and there is no capture file at all"),
        ("0-0.capture.incomplete", "odd_marker", "a directory"),
        ("0-1.capture.incomplete", "incomplete", "and there is no capture file at all"),
        ("0-1.capture.incomplete", "odd_marker", "a symbolic link"),
        (long[0], "incomplete", "and there is no capture file at all"),
        (long[1], "incomplete", ""),
        ("short.capture.lost", "foreign_file", "0 bytes"),
    ] == [(item["file"], item["code"], item["detail"]) for item in shown["findings"]]
    assert 4 == shown["rollouts"]


def test_a_rollout_that_is_cleared_meanwhile_is_none(tmp_path: Path) -> None:
    for rollout_id in ("0-0", "0-1", "0-2"):
        capture(tmp_path, rollout_id, b"{broken\n")
        (tmp_path / f"{rollout_id}.capture.incomplete").touch()
    inspection = Inspection(tmp_path)
    findings = inspection.findings()
    assert "0-0.capture.jsonl" == next(findings).file
    for path in tmp_path.glob("0-1.*"):
        path.unlink()
    rest = [finding.file for finding in findings]
    assert ["0-0.capture.incomplete", "0-2.capture.jsonl", "0-2.capture.incomplete"] == rest
    assert 2 == inspection.rollouts


def test_a_file_is_judged_by_what_was_read_of_it_whatever_becomes_of_it_meanwhile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = capture(tmp_path, "0-0"), capture(tmp_path, "0-1")

    def calls_of(path: Path) -> Iterator[Any]:
        yield from capture_directory.calls_of(path)
        first.write_bytes(line(record()))
        second.unlink(missing_ok=True)

    monkeypatch.setattr("otel_gym.cli.inspection.calls_of", calls_of)
    _, shown = verify(capsys, tmp_path)
    assert [("0-0.capture.jsonl", "the file is empty")] == [
        (item["file"], item["detail"]) for item in shown["findings"]
    ]
    assert 1 == shown["rollouts"]


def test_a_directory_that_may_not_be_listed_is_wrong_usage(tmp_path: Path) -> None:
    """In a child without root's rights, since root may list anything."""
    sealed = tmp_path / "sealed"
    sealed.mkdir()
    for parent in (*tmp_path.parents, tmp_path):
        if parent.stat().st_uid == os.getuid() and "pytest-" in str(parent):
            parent.chmod(0o755)
    sealed.chmod(0o311)
    for command in ("verify", "show"):
        result = subprocess.run(
            [sys.executable, "-c", WITHOUT_RIGHTS, command, str(sealed), "--json"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (2, "", f"otel-gym {command}: the directory '{sealed}' cannot be listed: Permission denied\n") == (
            result.returncode,
            result.stdout,
            result.stderr,
        )


WITHOUT_RIGHTS = """
import os, sys
from otel_gym.cli import main, make_parser
make_parser()  # loads what the child may not read any more
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""


def test_notes_alone_leave_a_directory_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture(tmp_path, "0-0", record())
    (tmp_path / "ev\x1b[31mil\n.txt").touch()
    assert main(["verify", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert r"ev\x1b[31mil\n.txt: foreign_file: 0 bytes" in out.splitlines()
    assert "complete, 1 note: 1 rollout, 1 call" in out


def test_a_file_that_stays_locked_is_named_and_the_rest_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_directory, "LOCK_TIMEOUT_S", 0.1)
    locked = capture(tmp_path, "0-0", record())
    capture(tmp_path, "0-1", record())
    with locked.open("ab") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        code, shown = verify(capsys, tmp_path)
    assert (1, [("0-0.capture.jsonl", None, "unreadable_file", "problem")], 1) == (code, found(shown), shown["calls"])
    assert "stayed locked by another process" in shown["findings"][0]["detail"]


def test_a_line_too_long_to_be_looked_into_is_said_to_be_unchecked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_directory, "MAX_LINE_BYTES", 2 * MB)
    capture(tmp_path, "0-0", record(), record(request={"text": "x" * 3 * MB}))
    code, shown = verify(capsys, tmp_path)
    assert (1, [("0-0.capture.jsonl", 2, "unchecked_line", "problem")]) == (code, found(shown))


def test_of_many_findings_of_a_kind_the_first_ten_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture(tmp_path, "0-0", *([b"{broken\n"] * 25))
    assert main(["verify", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert (10, "  … and 15 more of damaged_line in this file ('--json' lists all)", True) == (
        sum(text.startswith("0-0.capture.jsonl:") for text in lines),
        lines[10],
        lines[-1].startswith("25 problems: 1 rollout, 0 calls"),
    )


def test_a_directory_without_captures_is_complete_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(tmp_path)]) == 0
    output = capsys.readouterr()
    assert ("complete: 0 rollouts, 0 calls, 0 B\n", True) == (output.out, "no capture files in" in output.err)


def test_a_directory_that_is_not_there_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err == f"otel-gym verify: there is no directory '{tmp_path}/x'\n"


def test_a_call_that_stands_in_two_files_is_found_in_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, other = record(), record(), record()
    capture(tmp_path, "0-0", first, other, second)
    capture(tmp_path, "0-1", record(), second, second)
    code, shown = verify(capsys, tmp_path)
    place = f"{second['model_call_id']}, as in 0-0.capture.jsonl:3"
    assert (1, [("0-1.capture.jsonl", line, "repeated_call", place) for line in (2, 3)]) == (
        code,
        [(item["file"], item["line"], item["code"], item["detail"]) for item in shown["findings"]],
    )


def test_of_a_copied_file_only_its_beginning_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copied = capture(tmp_path, "0-0", record(), record(), record()).read_bytes()
    twice = record()
    for rollout_id in ("0-1", "0-2"):
        capture(tmp_path, rollout_id, copied, twice)
    _, shown = verify(capsys, tmp_path)
    assert [
        ("0-1.capture.jsonl", 1, "copied_file", "problem"),
        ("0-2.capture.jsonl", 1, "copied_file", "problem"),
        ("0-2.capture.jsonl", 4, "repeated_call", "problem"),
    ] == found(shown)


def test_more_repeated_calls_than_can_be_remembered_are_said_to_be_unchecked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_gym.cli.repeated_calls.MAX_SUSPECTS", 1)
    one, two = record(), record()
    capture(tmp_path, "0-0", one, two, one, two)
    _, shown = verify(capsys, tmp_path)
    assert [("0-0.capture.jsonl", 3, "repeated_call", "problem"), (".", None, "unchecked_ids", "note")] == found(shown)


def peak_memory(*arguments: object) -> tuple[int, int]:
    """Exit code, and the peak resident memory of a process of its own, in bytes (on Linux)."""
    program = (
        "import sys\n"
        "from otel_gym.cli import main\n"
        "code = main(sys.argv[1:])\n"
        f"print(code, {PEAK_KB}, file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, check=True, timeout=300
    )
    code, kilobytes = map(int, result.stderr.split()[-2:])
    return code, kilobytes * 1024


@pytest.fixture(scope="module")
def small_and_large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A directory with one call, and one with 300 MB of calls and a hole of 700 MB, as a crash may leave it."""
    small, large = tmp_path_factory.mktemp("small"), tmp_path_factory.mktemp("large")
    capture(small, "0-0", record())
    with capture(large, "0-0", record()).open("ab") as file:
        text = "x" * MB
        for _ in range(300):
            file.write(line(record(response_raw=text)))
        file.truncate(file.tell() + 700 * MB)
    return small, large


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["verify"], ["show"], ["show", "--json"]])
def test_memory_does_not_grow_with_the_files(small_and_large: tuple[Path, Path], arguments: list[str]) -> None:
    small, large = small_and_large
    _, base = peak_memory(*arguments, small)
    code, peak = peak_memory(*arguments, large)
    assert (1, True) == (code, peak - base < 40 * MB)
