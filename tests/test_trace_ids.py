"""Derived ids, and the run id that all processes of a run agree on."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.errors import SettingsError
from otel_gym.settings import Settings
from otel_gym.trace_ids import RUN_ID_FILE, call_span_id, rollout_trace, run_id_of

PROCESSES = 16
# Each says that it is ready, waits for the word, and prints the run id that it got.
RACER = """
import sys
from pathlib import Path
from otel_gym.trace_ids import run_id_of
print("ready", flush=True)
sys.stdin.readline()
print(run_id_of(Path(sys.argv[1])))
"""


def test_the_ids_of_a_rollout_are_those_of_the_specification() -> None:
    """By hand: sha256sum of `otel-gym/v1`, NUL, `run`, NUL, `3-1`."""
    digest = hashlib.sha256(b"otel-gym/v1\x00run\x003-1").hexdigest()
    trace_id, root_span_id = rollout_trace("run", "3-1")
    assert (digest[:32], digest[32:48]) == (f"{trace_id:032x}", f"{root_span_id:016x}")


def test_a_call_has_the_first_half_of_its_id_as_span_id() -> None:
    assert 0x0123456789ABCDEF == call_span_id("0123456789abcdef" + "f" * 16)


@given(
    st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1),
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]*", fullmatch=True),
)
def test_run_and_rollout_cannot_be_taken_for_another_pair(run_id: str, rollout_id: str) -> None:
    assert rollout_trace(run_id, rollout_id) != rollout_trace(run_id + rollout_id[:1], rollout_id[1:])


def test_the_run_id_is_made_once_and_then_read(tmp_path: Path) -> None:
    made = run_id_of(tmp_path)
    assert [RUN_ID_FILE] == [path.name for path in tmp_path.iterdir()]
    assert f"{made}\n" == (tmp_path / RUN_ID_FILE).read_text("ascii")
    assert 32 == len(made)
    assert made == run_id_of(tmp_path)


def test_sixteen_processes_that_start_at_once_agree_on_one_run_id(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RACER, str(tmp_path)]
    racers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert "ready\n" == racer.stdout.readline()
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    got = [racer.communicate(timeout=60)[0].strip() for racer in racers]
    assert [run_id_of(tmp_path)] * PROCESSES == got
    assert [RUN_ID_FILE] == [path.name for path in tmp_path.iterdir()]


def test_whoever_comes_second_takes_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between our look and our making another process was faster."""
    link = os.link

    def slower(source: Any, target: Any) -> None:
        Path(target).write_text("theirs\n")
        link(source, target)

    monkeypatch.setattr(os, "link", slower)
    assert "theirs" == run_id_of(tmp_path)
    assert [RUN_ID_FILE] == [path.name for path in tmp_path.iterdir()]


def test_a_file_system_without_hard_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    made = run_id_of(tmp_path)
    assert made == run_id_of(tmp_path)
    assert [RUN_ID_FILE] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("held", [b"", b"\n", b"two\nlines\n", b"nul\0\n", b"x" * 2000], ids=repr)
def test_a_file_that_holds_no_run_id_is_refused_with_what_to_do(tmp_path: Path, held: bytes) -> None:
    (tmp_path / RUN_ID_FILE).write_bytes(held)
    with pytest.raises(SettingsError, match="remove the file, and a new run id is made"):
        run_id_of(tmp_path)


def test_a_directory_that_cannot_be_read_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / RUN_ID_FILE).mkdir()
    with pytest.raises(SettingsError, match=r"the run id cannot be kept there .* OTEL_GYM_MIRROR=false"):
        run_id_of(tmp_path)


def test_the_setting_beats_the_file_and_makes_none(tmp_path: Path) -> None:
    settings = Settings(observability_enabled=True, model_call_capture_dir=tmp_path, run_id="tonight")
    assert "tonight" == settings.trace_run_id()
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("run_id", ["two\nlines", "nul\0", "  ", "x" * 2000], ids=repr)
def test_a_run_id_that_is_no_line_of_text_is_refused(run_id: str) -> None:
    with pytest.raises(SettingsError, match="one line of text"):
        Settings(run_id=run_id)
