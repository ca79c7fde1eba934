from __future__ import annotations

import io

from otel_gym.collect.progress import Progress
from otel_gym.collect.result_row import bad_line_row
from otel_gym.collect.tally import Tally


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
