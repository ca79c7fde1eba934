"""The teller: in order, in a row, when nobody else needs the interpreter; bounded, and complete in the end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest

from otel_gym import teller as module
from otel_gym.teller import Teller

PATIENCE_S = 30
THREAD = "otel-gym-teller"


class Note:
    """Something to tell, which says so."""

    def __init__(self, told: list[str], name: str, size: int = 1, then: Callable[[], None] = lambda: None) -> None:
        self.size = size
        self._told = told
        self._name = name
        self._then = then

    def tell(self) -> None:
        self._then()
        self._told.append(self._name)


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def a_teller(crowded: bool = False, max_bytes: int = 1000) -> Teller:
    return Teller(lambda: crowded, max_bytes)


def test_all_is_told_once_and_in_order() -> None:
    told: list[str] = []
    teller = a_teller()
    for number in range(200):
        teller.put(Note(told, str(number)))
    assert eventually(lambda: len(told) == 200)
    assert told == [str(number) for number in range(200)]
    assert teller.flush(PATIENCE_S)


def test_what_fails_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    def fail() -> None:
        raise ValueError("odd")

    teller = a_teller()
    teller.put(Note(told, "bad", then=fail))
    teller.put(Note(told, "good"))
    assert teller.flush(PATIENCE_S)
    assert (told, [record.exc_info is not None for record in caplog.records]) == (["good"], [True])


def test_it_gives_way_to_a_crowd_but_not_to_who_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GIVE_WAY_SECONDS", PATIENCE_S)
    told: list[str] = []
    teller = a_teller(crowded=True)
    teller.put(Note(told, "a"))
    time.sleep(4 * module.LINGER_SECONDS)
    assert told == []
    assert teller.flush(PATIENCE_S)
    assert told == ["a"]


def test_it_does_not_give_way_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GIVE_WAY_SECONDS", 0.1)
    told: list[str] = []
    teller = a_teller(crowded=True)
    teller.put(Note(told, "a"))
    assert eventually(lambda: told == ["a"])


def test_beyond_the_bound_who_comes_tells_of_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Teller, "_run", lambda _teller, _owner: None)  # the thread does not get to it
    told: list[str] = []
    teller = a_teller(max_bytes=100)
    for number in range(12):
        teller.put(Note(told, str(number), size=20))
    assert told == [str(number) for number in range(7)]
    teller.put(Note(told, "large", size=500))
    assert told == [*(str(number) for number in range(12)), "large"]
    assert teller.flush(0)


def test_when_room_runs_out_it_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LINGER_SECONDS", "GIVE_WAY_SECONDS"):
        monkeypatch.setattr(module, name, 10 * PATIENCE_S)
    told: list[str] = []
    teller = a_teller(crowded=True, max_bytes=100)
    teller.put(Note(told, "a", size=80))
    assert told == []
    teller.put(Note(told, "b", size=10))
    assert eventually(lambda: told == ["a", "b"])


def test_two_who_tell_at_once_keep_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER_SECONDS", 0)
    told: list[str] = []
    teller = a_teller(max_bytes=10)
    for number in range(500):
        teller.put(Note(told, str(number), size=9, then=lambda: time.sleep(0)))
    assert teller.flush(PATIENCE_S)
    assert told == [str(number) for number in range(500)]


def test_a_flush_is_bounded_and_says_that_something_is_left() -> None:
    told: list[str] = []
    go_on = threading.Event()
    teller = a_teller()
    teller.put(Note(told, "slow", then=lambda: assert_true(go_on.wait(PATIENCE_S))))
    assert not teller.flush(0.2)
    go_on.set()
    assert teller.flush(PATIENCE_S)
    assert told == ["slow"]


def assert_true(value: bool) -> None:
    assert value


def test_without_a_thread_it_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    told: list[str] = []
    teller = a_teller(crowded=True)
    teller.put(Note(told, "a"))
    assert (told, teller.flush(0)) == (["a"], True)


def test_a_thread_with_nothing_to_tell_ends_and_another_comes_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.05)
    told: list[str] = []
    teller = a_teller()
    for name in "ab":
        teller.put(Note(told, name))
        assert eventually(lambda: teller._thread is None)
    assert told == ["a", "b"]


def test_a_forked_child_has_nothing_of_its_parent_s_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER_SECONDS", PATIENCE_S)
    told: list[str] = []
    teller = a_teller()
    teller.put(Note(told, "parent"))
    child = os.fork()
    if not child:
        teller.put(Note(told, "child"))
        os._exit(0 if teller.flush(PATIENCE_S) and told == ["child"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert teller.flush(PATIENCE_S)
    assert told == ["parent"]


def test_a_log_handler_that_raises_does_not_end_the_telling(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("odd")

    monkeypatch.setattr(module.logger, "exception", fail)
    told: list[str] = []
    teller = a_teller()
    teller.put(Note(told, "bad", then=fail))
    assert teller.flush(PATIENCE_S)
    teller.put(Note(told, "good"))
    assert (teller.flush(PATIENCE_S), told) == (True, ["good"])
