"""Long events, which are judged off the event loop: whatever the application does meanwhile, its client gets all."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from otel_gym import CaptureMiddleware, Settings, passing_stream
from otel_gym.sse import TerminalWatch
from otel_gym.testing import EVENT_STREAM, Exchange, sse
from otel_gym.threads import Threads
from otel_gym_jsonl import CaptureStore

PATH = "/ng-rollout/0-0/v1/responses"
OPEN = {"type": "http.response.start", "status": 200, "headers": list(EVENT_STREAM)}
END = {"type": "http.response.body", "body": b"", "more_body": False}
App = Callable[[Any, Any, Any], Awaitable[None]]


def event(kind: str, **more: Any) -> bytes:
    return sse(json.dumps({"type": kind, **more}), event=kind)


BEGUN = event("response.created", response={"id": "r", "output": []})
LONG = event("response.output_text.delta", output_index=0, delta="error " + "x" * 2_000_000)
NEXT = event("response.output_text.delta", output_index=0, delta="!")
DONE = event("response.completed", response={"id": "r", "output": []})
LONG_DONE = event("response.completed", response={"id": "r", "output": [], "instructions": "x" * 20_000})


def piece(body: Any, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


class Capture:
    """Middleware around an application, and the record that it leaves."""

    def __init__(self, directory: Path) -> None:
        self.settings = Settings(observability_enabled=True, model_call_capture_dir=directory)
        self.store = CaptureStore(directory)

    def call(self, app: App) -> Exchange:
        return Exchange(CaptureMiddleware(app, self.settings), PATH)

    def record(self) -> dict[str, Any]:
        [record] = self.store.read("0-0")
        return record


@pytest.fixture
def capture(tmp_path: Path) -> Capture:
    return Capture(tmp_path)


class Judge:
    """Takes its time over each verdict, until it is let go on."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go_on = threading.Event()

    async def is_asked(self) -> None:
        assert await asyncio.to_thread(self.asked.wait, 30)


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[Judge]:
    slow = Judge()
    judged = TerminalWatch.judge

    def judge(watch: TerminalWatch) -> bool:
        slow.asked.set()
        assert slow.go_on.wait(30)
        return judged(watch)

    monkeypatch.setattr(TerminalWatch, "judge", judge)
    yield slow
    slow.go_on.set()


# ---- the application's own executor


async def test_generators_in_the_applications_executor_do_not_wait_for_us_nor_we_for_them(capture: Capture) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    pieces = [BEGUN, LONG, NEXT, NEXT, NEXT, LONG_DONE]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(1)

        def generate() -> None:
            for body in [*pieces, None]:
                asyncio.run_coroutine_threadsafe(queue.put(body), loop).result(30)

        generating = loop.run_in_executor(None, generate)
        await send(OPEN)
        while (body := await queue.get()) is not None:
            await send(piece(body))
        await send(END)
        await generating

    async with capture.call(app) as call:
        await call.rest()
    assert b"".join(pieces) == call.body
    assert None is capture.record()["error_category"]


async def test_an_executor_that_was_shut_down_is_nothing_to_us(capture: Capture) -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    asyncio.get_running_loop().set_default_executor(executor)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in (OPEN, *map(piece, (BEGUN, LONG, LONG_DONE)), END):
            await send(message)

    async with capture.call(app) as call:
        await call.rest()
    assert BEGUN + LONG + LONG_DONE == call.body
    assert None is capture.record()["error_category"]


async def test_without_a_thread_a_long_end_is_known_before_the_client_sees_it(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(*_: Any) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Threads, "run", no_thread)
    monkeypatch.setattr(passing_stream, "_judges", Threads("none", 1))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in (OPEN, piece(BEGUN), piece(LONG_DONE)):
            await send(message)
        await asyncio.Event().wait()

    async with capture.call(app) as call:
        while LONG_DONE not in call.body:
            await call.message()
        assert None is capture.record()["error_category"]


# ---- an application that does not wait


async def test_a_send_that_times_out_while_a_long_event_is_judged_loses_nothing(capture: Capture, judge: Judge) -> None:
    timed_out = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal timed_out
        await send(OPEN)
        await send(piece(BEGUN))
        for body in map(bytearray, (LONG, NEXT, DONE)):
            try:
                await asyncio.wait_for(send(piece(body)), 0.05)
            except asyncio.TimeoutError:
                timed_out += 1
                body[:] = b"?" * len(body)
        judge.go_on.set()
        await send(END)

    async with capture.call(app) as call:
        await call.rest()
    assert 3 == timed_out
    assert BEGUN + LONG + NEXT + DONE == call.body
    record = capture.record()
    assert (call.body.decode(), None) == (record["response_raw"], record["error_category"])


async def test_what_other_tasks_send_meanwhile_comes_behind(capture: Capture, judge: Judge) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(OPEN)
        await send(piece(BEGUN))
        first = asyncio.ensure_future(send(piece(LONG)))
        await judge.is_asked()
        others = [asyncio.ensure_future(send(piece(b": %d\n\n" % number))) for number in range(3)]
        await asyncio.sleep(0.01)
        assert not any(sending.done() for sending in (first, *others))
        judge.go_on.set()
        await asyncio.gather(first, *others)
        await send(piece(DONE, more=False))

    async with capture.call(app) as call:
        await call.rest()
    assert BEGUN + LONG + b": 0\n\n: 1\n\n: 2\n\n" + DONE == call.body


@pytest.mark.parametrize("body", [LONG, LONG_DONE], ids=["in mid-stream", "at the terminal"])
@pytest.mark.parametrize("more", [True, False], ids=["", "the last message"])
async def test_an_application_that_is_cancelled_then_is_cancelled_and_its_client_has_the_piece(
    capture: Capture, judge: Judge, body: bytes, more: bool
) -> None:
    cancelled = False

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal cancelled
        await send(OPEN)
        await send(piece(BEGUN))
        try:
            await send(piece(body, more))
        except asyncio.CancelledError:
            cancelled = True
            judge.go_on.set()
            raise

    async with capture.call(app) as call:
        await judge.is_asked()
        call.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call.rest()
    assert cancelled
    assert BEGUN + body == call.body
    expected = None if body is LONG_DONE else "cancelled"
    assert (expected, call.body.decode()) == (capture.record()["error_category"], capture.record()["response_raw"])


async def test_an_application_that_returns_meanwhile_has_sent_it_all(capture: Capture, judge: Judge) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(OPEN)
        for body in (BEGUN, LONG, NEXT):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(send(piece(body)), 0.05)
        asyncio.get_running_loop().call_later(0.05, judge.go_on.set)

    async with capture.call(app) as call:
        await call.rest()
    assert BEGUN + LONG + NEXT == call.body


async def test_a_client_that_leaves_meanwhile_is_the_next_sends_affair(capture: Capture, judge: Judge) -> None:
    refused: list[BaseException] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(OPEN)
        try:
            await asyncio.wait_for(send(piece(LONG)), 0.05)
        except asyncio.TimeoutError:
            judge.go_on.set()
        try:
            await send(piece(NEXT))
        except OSError as error:
            refused.append(error)
            raise

    async def leaving(scope: Any, receive: Any, send: Any) -> None:
        async def send_the_start(message: Any) -> None:
            if message["type"] == "http.response.body":
                raise OSError("the client has left")
            await send(message)

        await CaptureMiddleware(app, capture.settings)(scope, receive, send_the_start)

    async with Exchange(leaving, PATH) as call:
        with pytest.raises(OSError, match="has left"):
            await call.rest()
    assert 1 == len(refused)
