from __future__ import annotations

import asyncio
import logging
import os
import threading
import warnings

import pytest

from otel_gym import threads
from otel_gym.threads import Threads, aside


async def test_work_is_done_on_another_thread_and_its_result_comes_back() -> None:
    mine = Threads("mine", 2)
    assert ["mine"] * 3 == [await mine.run(lambda: threading.current_thread().name) for _ in range(3)]
    assert "mine" != threading.current_thread().name


async def test_what_the_work_raises_comes_back_too_and_the_thread_goes_on() -> None:
    mine = Threads("mine", 1)
    with pytest.raises(ZeroDivisionError):
        await mine.run(lambda: 1 // 0)
    assert 1 == await mine.run(lambda: 1)


async def test_so_many_threads_run_at_a_time_and_the_rest_waits() -> None:
    mine = Threads("mine", 2)
    begun = threading.Semaphore(0)
    go_on = threading.Event()

    def work() -> str:
        begun.release()
        go_on.wait(30)
        return "done"

    futures = [mine.run(work) for _ in range(5)]
    for _ in range(2):
        assert await asyncio.to_thread(begun.acquire, timeout=30)
    assert not await asyncio.to_thread(begun.acquire, timeout=0.1)
    go_on.set()
    assert ["done"] * 5 == await asyncio.gather(*futures)


async def test_a_thread_without_work_ends_and_another_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "IDLE_SECONDS", 0.01)
    mine = Threads("mine", 1)
    first = await mine.run(threading.current_thread)
    await asyncio.to_thread(first.join, 30)
    assert not first.is_alive()
    assert first is not await mine.run(threading.current_thread)


async def test_a_result_that_nobody_waits_for_any_more_is_dropped() -> None:
    mine = Threads("mine", 1)
    go_on = threading.Event()
    mine.run(lambda: go_on.wait(30)).cancel()
    go_on.set()
    assert 1 == await mine.run(lambda: 1)


def test_a_loop_may_end_before_its_work_does() -> None:
    mine = Threads("mine", 1)
    go_on = threading.Event()

    async def begin() -> None:
        mine.run(lambda: go_on.wait(30))

    async def again() -> int:
        return await mine.run(lambda: 1)

    asyncio.run(begin())
    go_on.set()
    assert 1 == asyncio.run(again())


def test_a_forked_child_has_threads_of_its_own() -> None:
    mine = Threads("mine", 1)

    async def work() -> int:
        return await asyncio.wait_for(mine.run(lambda: 7), 30)

    assert 7 == asyncio.run(work())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, which is the point
        child = os.fork()
    if not child:
        try:
            os._exit(asyncio.run(work()))
        finally:
            os._exit(1)
    assert 7 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


async def test_where_no_further_thread_is_to_be_had_one_does_all_and_without_one_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, none = Threads("one", 2), Threads("none", 2)
    go_on = threading.Event()
    first = one.run(lambda: int(go_on.wait(30)))
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    second = one.run(lambda: 2)
    go_on.set()
    assert [1, 2] == [await first, await second]
    with pytest.raises(RuntimeError, match="can't start"):
        none.run(lambda: 1)


async def test_what_is_done_aside_fails_in_the_log_only(caplog: pytest.LogCaptureFixture) -> None:
    await aside(lambda: 1 // 0, 30, "numbers are divided")
    assert [(logging.ERROR, "otel-gym: while numbers are divided")] == [
        (entry.levelno, entry.getMessage()) for entry in caplog.records
    ]


async def test_what_is_done_aside_is_not_waited_for_when_it_takes_too_long(caplog: pytest.LogCaptureFixture) -> None:
    go_on = threading.Event()
    over = threading.Event()

    def work() -> None:
        go_on.wait(30)
        over.set()

    await aside(work, 0.01, "numbers are divided")
    go_on.set()
    assert await asyncio.to_thread(over.wait, 30)
    assert ["otel-gym: numbers are divided for longer than 0.01 s: not waited for"] == caplog.messages


async def test_without_a_thread_nothing_is_done_aside_and_nothing_raised(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threads, "_aside", Threads("none", 1))
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    await aside(lambda: None, 30, "numbers are divided")
    assert ["otel-gym: while numbers are divided"] == caplog.messages
