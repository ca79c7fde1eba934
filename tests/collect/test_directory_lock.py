from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gym.collect.claims import Claim
from otel_gym.collect.directory_lock import DirectoryLock
from otel_gym.collect.errors import BusyError
from otel_gym.collect.row_file import RowFile
from otel_gym.collecting import COLLECT_LOCK_FILE, Collection, is_held, say
from tests.servers.processes import wait_until


def claim(*tasks: int) -> Claim:
    made = Claim()
    for task in tasks:
        made.add_pair((task, 0))
    return made


@contextlib.contextmanager
def collecting(directory: Path, name: str, *tasks: int) -> Iterator[DirectoryLock]:
    """As a collection does it: first its output, then the directory."""
    with contextlib.closing(RowFile(directory.parent / name)):
        lock = DirectoryLock(directory, directory.parent / name, claim(*tasks))
        try:
            yield lock
        finally:
            lock.release()


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    (tmp_path / "calls").mkdir()
    return tmp_path / "calls"


def test_a_second_collection_of_a_rollout_is_told_which_and_who_runs_it(calls: Path) -> None:
    with collecting(calls, "one.jsonl", 1, 2, 3):
        with pytest.raises(BusyError) as refused, collecting(calls, "two.jsonl", 3, 4):
            pass
        message = str(refused.value)
        assert (
            f"{calls}: another collection runs rollout 3-0 on this capture directory (process {os.getpid()}" in message
        )
        assert f"writes {calls.parent / 'one.jsonl'})" in message
    with collecting(calls, "two.jsonl", 3, 4):
        assert is_held(calls / COLLECT_LOCK_FILE)
    assert not is_held(calls / COLLECT_LOCK_FILE)


def test_collections_of_other_rollouts_hold_it_together(calls: Path) -> None:
    with collecting(calls, "one.jsonl", 1):
        with collecting(calls, "two.jsonl", 2), pytest.raises(BusyError), collecting(calls, "three.jsonl", 2):
            pass
        assert is_held(calls / COLLECT_LOCK_FILE)
        with collecting(calls, "three.jsonl", 2):
            pass


def test_of_several_one_that_still_runs_holds_it_whoever_ends_first(calls: Path) -> None:
    looks = Collection(calls)
    with contextlib.ExitStack() as last, contextlib.ExitStack() as middle:
        with collecting(calls, "one.jsonl", 1):
            middle.enter_context(collecting(calls, "two.jsonl", 2))
            last.enter_context(collecting(calls, "three.jsonl", 3))
            assert looks.runs()
        wait_until(lambda: is_held(calls / COLLECT_LOCK_FILE))
        middle.close()
        wait_until(lambda: is_held(calls / COLLECT_LOCK_FILE))
        with pytest.raises(BusyError), collecting(calls, "four.jsonl", 3):
            pass
    wait_until(lambda: not is_held(calls / COLLECT_LOCK_FILE))
    with collecting(calls, "four.jsonl", 1, 2, 3):
        pass


def test_who_comes_between_two_holders_leaves_the_lines_of_those_that_run(calls: Path) -> None:
    with (
        contextlib.closing(RowFile(calls.parent / "waits.jsonl")) as output,
        (calls / COLLECT_LOCK_FILE).open("ab") as file,
    ):
        waiting = {"process": 1, "on": socket.gethostname(), "writes": str(output.path), "rollouts": claim(1).told()}
        say(file.fileno(), {"collection": waiting})
        with collecting(calls, "one.jsonl", 2), pytest.raises(BusyError), collecting(calls, "two.jsonl", 1):
            pass


def test_a_refused_collection_is_in_nobodys_way(calls: Path) -> None:
    with collecting(calls, "one.jsonl", 1):
        with pytest.raises(BusyError), collecting(calls, "two.jsonl", 1, 2):
            pass
        with collecting(calls, "three.jsonl", 2):
            pass


def test_a_resumed_collection_is_not_kept_off_by_its_own_past(calls: Path) -> None:
    with collecting(calls, "other.jsonl", 9):
        with collecting(calls, "one.jsonl", 1, 2):
            pass
        with collecting(calls, "one.jsonl", 2):  # it claims less than before
            with collecting(calls, "two.jsonl", 1):
                pass
            with pytest.raises(BusyError), collecting(calls, "two.jsonl", 2):
                pass


KILLED = """
import os, signal, sys
from pathlib import Path
from otel_gym.collect.row_file import RowFile
from tests.collect.test_directory_lock import DirectoryLock, claim
file = RowFile(Path(sys.argv[1]))
lock = DirectoryLock(Path(sys.argv[2]), file.path, claim(1))
if sys.argv[3:]:
    file.path.unlink()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("gone", [(), ("its output is gone too",)])
def test_what_a_killed_collection_claimed_is_free_while_others_run(calls: Path, gone: tuple[str, ...]) -> None:
    with collecting(calls, "other.jsonl", 9):
        killed = [sys.executable, "-c", KILLED, str(calls.parent / "killed.jsonl"), str(calls), *gone]
        assert -9 == subprocess.run(killed, timeout=60).returncode
        with collecting(calls, "two.jsonl", 1):
            pass


def test_a_collection_of_another_machine_runs_as_long_as_anybody_does(calls: Path) -> None:
    elsewhere = {"process": 1, "on": "elsewhere", "writes": "/nowhere/x.jsonl", "rollouts": claim(1).told()}
    with collecting(calls, "other.jsonl", 9):
        with (calls / COLLECT_LOCK_FILE).open("ab") as file:
            say(file.fileno(), {"collection": elsewhere})
        with pytest.raises(BusyError, match="on elsewhere"), collecting(calls, "two.jsonl", 1):
            pass
    with collecting(calls, "two.jsonl", 1):
        assert "elsewhere" not in (calls / COLLECT_LOCK_FILE).read_text()


def test_who_holds_it_alone_and_says_nothing_keeps_everybody_off(calls: Path) -> None:
    with (calls / COLLECT_LOCK_FILE).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BusyError, match="does not say which rollouts"), collecting(calls, "one.jsonl", 1):
            pass


@pytest.mark.parametrize("how", [fcntl.LOCK_SH, fcntl.LOCK_EX])
def test_a_model_server_that_looks_at_the_lock_is_not_taken_for_a_collection(calls: Path, how: int) -> None:
    (calls / COLLECT_LOCK_FILE).touch()
    fd = os.open(calls / COLLECT_LOCK_FILE, os.O_RDONLY)
    fcntl.flock(fd, how)
    looking = threading.Timer(0.05, os.close, [fd])
    looking.start()
    with collecting(calls, "one.jsonl", 1):
        pass
    looking.join()


def test_lines_that_a_killed_process_left_half_written_cost_nobody_else(calls: Path) -> None:
    path = calls / COLLECT_LOCK_FILE
    with collecting(calls, "one.jsonl", 1):
        with path.open("ab") as file:
            file.write(b'{"collection": {"process"')
        with collecting(calls, "two.jsonl", 2), pytest.raises(BusyError), collecting(calls, "three.jsonl", 2):
            pass


def test_calls_without_a_rollout_count_from_the_beginning(calls: Path) -> None:
    path = calls / COLLECT_LOCK_FILE
    with collecting(calls, "one.jsonl", 1) as one, path.open("ab") as file:
        say(file.fileno(), {"unattributed": {"no_prefix": 2}})
        with collecting(calls, "two.jsonl", 2) as two:
            say(file.fileno(), {"unattributed": {"no_prefix": 3, "bad_id": 1, "odd": -1, "other": "x"}})
            file.write(json.dumps({"unattributed": {"no_prefix": 100}})[:-1].encode())  # half a line
            file.flush()
            assert {"no_prefix": 3, "bad_id": 1} == two.unattributed() == two.unattributed()
            assert {"no_prefix": 5, "bad_id": 1} == one.unattributed()
