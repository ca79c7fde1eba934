from __future__ import annotations

import fcntl
import io
import os
import pty
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gym.collect.progress import Progress
from otel_gym.collect.result_row import bad_line_row
from otel_gym.collect.tally import Tally
from tests.cli.collecting import Collecting
from tests.collect.conftest import AgentServer, Write
from tests.servers.processes import wait_until


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def some_way() -> Tally:
    tally = Tally(wanted=10, earlier=3, done=1, calls=1_200)
    tally.add(0, bad_line_row(0, "why"))
    return tally


def test_a_terminal_gets_one_line_that_is_drawn_again() -> None:
    stream = Terminal()
    progress = Progress(some_way(), stream, captured=True)
    progress.tell()
    progress.tell()
    progress.end()
    text = stream.getvalue()
    assert "[============            ] 5/10 rollouts, 1 failed, 1,200 calls" in text
    assert "\n" not in text
    assert text.endswith("\r\x1b[K")


def test_elsewhere_it_is_plain_lines() -> None:
    stream = io.StringIO()
    Progress(some_way(), stream, captured=False).tell()
    assert "otel-gym collect: 5/10 rollouts, 1 failed, 0:00 left\n" == stream.getvalue()


def test_an_interruption_is_told_once_with_what_a_second_one_does() -> None:
    stream, tally = io.StringIO(), some_way()
    tally.interrupted = True
    progress = Progress(tally, stream, captured=False)
    progress.tell()
    progress.tell()
    assert 1 == stream.getvalue().count("interrupt again to cancel them")


def test_nothing_is_said_of_the_time_left_before_anything_has_ended() -> None:
    stream = io.StringIO()
    Progress(Tally(), stream, captured=False).tell()
    assert "otel-gym collect: 0/? rollouts, 0 failed\n" == stream.getvalue()


class Screen:
    """A real terminal of so many columns, and a command that writes its stderr there."""

    def __init__(self, command: list[str], columns: int = 100) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, stdin=theirs, text=True)
        os.close(theirs)
        self.text = ""

    def shows(self, what: str) -> bool:
        """Whether it was ever drawn."""
        while select.select([self._ours], [], [], 0.05)[0]:
            try:
                piece = os.read(self._ours, 65_536)
            except OSError:  # the other side has gone
                break
            self.text += piece.decode()
        return what in self.text

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        os.close(self._ours)


@pytest.fixture
def screens() -> Iterator[list[Screen]]:
    opened: list[Screen] = []
    yield opened
    for screen in opened:
        screen.close()


@pytest.mark.servers
def test_on_a_real_terminal_the_bar_stays_on_one_line_until_it_goes(
    agent: AgentServer, tasks: Write, tmp_path: Path, screens: list[Screen]
) -> None:
    rows = tasks({}, {}, {"do": {"status": 404}}, {"do": {"sleep": 2}})
    (tmp_path / "calls").mkdir()
    command = Collecting(agent, rows, tmp_path / "out.jsonl", "--capture-dir", str(tmp_path / "calls")).command
    screens.append(screen := Screen(command))
    wait_until(lambda: screen.shows("] 3/4 rollouts, 1 failed, 0 calls, 0 tokens/s, 3 without calls, 0:0"))
    assert "[==================      ] 3/4" in screen.text
    said, _ = screen.process.communicate(timeout=60)
    screen.shows("")
    assert said.startswith("task 2, rollout 0: ")
    assert "\n" not in screen.text
    assert screen.text.endswith("\r\x1b[K")
    assert max(len(drawn.replace("\x1b[K", "")) for drawn in screen.text.split("\r")) < 100


@pytest.mark.servers
def test_on_a_real_terminal_an_interruption_is_told_above_the_bar(
    agent: AgentServer, tasks: Write, tmp_path: Path, screens: list[Screen]
) -> None:
    rows = tasks({}, {"do": {"sleep": 2}}, {"do": {"sleep": 2}})
    command = Collecting(agent, rows, tmp_path / "out.jsonl", "--concurrency", "2").command
    screens.append(screen := Screen(command))
    wait_until(lambda: screen.shows("] 1/3 rollouts"))
    screen.process.send_signal(signal.SIGINT)
    wait_until(lambda: screen.shows("stopping: waiting for the rollouts that run; interrupt again to cancel them\r\n"))
    said, _ = screen.process.communicate(timeout=60)
    assert (130, True) == (screen.process.returncode, said.startswith("interrupted: "))


@pytest.mark.servers
def test_on_a_narrow_terminal_the_bar_is_cut_whatever_becomes_of_stdout(
    agent: AgentServer, tasks: Write, tmp_path: Path, screens: list[Screen]
) -> None:
    rows = tasks({}, {"do": {"sleep": 1}})
    screens.append(screen := Screen(Collecting(agent, rows, tmp_path / "out.jsonl").command, columns=40))
    wait_until(lambda: screen.shows("[============            ] 1/2 rollouts\x1b[K"))
    assert 0 == screen.process.wait(60)
