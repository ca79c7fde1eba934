"""Calls that are cancelled, closed and abandoned at any moment: recorded once, nothing hangs, nothing complains."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

from otel_gym import CaptureMiddleware, Settings
from otel_gym.exchange import MOST_HELD_BYTES
from otel_gym.testing import EVENT_STREAM, Exchange, ScriptedModel, answer, stream
from otel_gym_jsonl import CaptureStore

PATH = "/ng-rollout/0-0/v1/chat/completions"
EVENTS = stream("chat", "Hel", "lo")
DELTAS = EVENTS[:3]
OPEN = {"type": "http.response.start", "status": 200, "headers": list(EVENT_STREAM)}
App = Callable[[Any, Any, Any], Awaitable[None]]


def piece(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


class Capture:
    """Middleware around an application, and the records that it leaves."""

    def __init__(self, directory: Path) -> None:
        self.settings = Settings(observability_enabled=True, model_call_capture_dir=directory)
        self.store = CaptureStore(directory)
        self.complaints: list[str] = []
        self._lock = -1

    def app(self, app: App) -> CaptureMiddleware:
        return CaptureMiddleware(app, self.settings)

    def call(self, app: App, **more: Any) -> Exchange:
        return Exchange(self.app(app), PATH, b'{"model":"m","stream":true}', **more)

    def hold_the_disk(self) -> None:
        """Somebody else locks the file: no record becomes durable until `free_the_disk`."""
        self._lock = os.open(self.store.path_for("0-0"), os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def free_the_disk(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def record(self) -> dict[str, Any]:
        """The one record of the rollout, once it is there."""
        for _ in range(3000):
            if records := self.store.read("0-0"):
                [record] = records
                assert not self.store.is_incomplete("0-0")
                return record
            await asyncio.sleep(0.01)
        raise TimeoutError("no record")


@pytest.fixture
async def capture(tmp_path: Path) -> AsyncIterator[Capture]:
    made = Capture(tmp_path)

    def complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        made.complaints.append(context["message"])

    asyncio.get_running_loop().set_exception_handler(complain)
    yield made
    made.free_the_disk()
    await asyncio.sleep(0.01)
    gc.collect()
    assert [] == made.complaints
    assert {asyncio.current_task()} == asyncio.all_tasks()


async def turns(count: int = 20) -> None:
    """Let the loop turn; it must be able to."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until_held(call: Exchange, messages: int) -> None:
    """Take so many messages, then give the rest of the call time to come to its end and wait there."""
    for _ in range(messages):
        await call.message()
    await asyncio.sleep(0.1)
    assert not call.task.done()


async def test_a_call_cancelled_in_mid_stream_is_recorded_as_cancelled(capture: Capture) -> None:
    async with capture.call(ScriptedModel([*DELTAS, 60])) as call:
        await until_held(call, 4)
        call.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call.task
        record = await capture.record()
    assert ("cancelled", b"".join(DELTAS).decode()) == (record["error_category"], record["response_raw"])
    assert "Hello" == record["response"]["choices"][0]["message"]["content"]
    assert b"".join(DELTAS) == call.body


async def test_a_call_cancelled_before_its_answer_has_no_status(capture: Capture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await asyncio.sleep(60)

    async with capture.call(app) as call:
        await asyncio.sleep(0.02)
        call.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call.task
    record = await capture.record()
    assert (None, "cancelled") == (record["status_code"], record["error_category"])
    assert {"model": "m", "stream": True} == record["request"]


async def test_the_first_cancellation_is_borne_until_the_record_is_durable(capture: Capture) -> None:
    capture.hold_the_disk()
    async with capture.call(ScriptedModel(EVENTS)) as call:
        await until_held(call, len(EVENTS))
        call.task.cancel()
        await turns()
        assert not call.task.done()
        capture.free_the_disk()
        with pytest.raises(asyncio.CancelledError):
            await call.task
        await call.message()
        assert b"".join(EVENTS) == call.body
    assert None is (await capture.record())["error_category"]


async def test_a_cancellation_that_is_repeated_ends_the_call_and_the_record_comes_all_the_same(
    capture: Capture,
) -> None:
    capture.hold_the_disk()
    async with capture.call(ScriptedModel(EVENTS)) as call:
        await until_held(call, len(EVENTS))
        for _ in range(3):  # the first is the application's
            call.task.cancel()
            await turns()
        assert call.task.cancelled()
    capture.free_the_disk()
    assert None is (await capture.record())["error_category"]


@pytest.mark.parametrize("script", [DELTAS, EVENTS], ids=["in mid-stream", "at the terminal"])
async def test_many_cancellations_in_a_row_leave_one_record(capture: Capture, script: list[bytes]) -> None:
    capture.hold_the_disk()
    async with capture.call(ScriptedModel([*script, 60])) as call:
        await until_held(call, 3)
        for _ in range(50):
            call.task.cancel()
            await asyncio.sleep(0)
        assert call.task.cancelled()
    capture.free_the_disk()
    expected = None if script is EVENTS else "cancelled"
    assert expected == (await capture.record())["error_category"]


@pytest.mark.parametrize("held", [True, False])
async def test_an_anyio_scope_around_the_call_ends_without_a_busy_loop(capture: Capture, held: bool) -> None:
    if held:
        capture.hold_the_disk()
    call = capture.call(ScriptedModel([*DELTAS, 60]))
    turned = 0

    async def count() -> None:
        nonlocal turned
        while True:
            turned += 1
            await asyncio.sleep(0.001)

    counter = asyncio.create_task(count())
    with anyio.move_on_after(0.1) as scope:
        async with call:
            await call.task
    assert scope.cancelled_caught
    before = turned
    await asyncio.sleep(0.05)
    assert turned > before
    counter.cancel()
    await asyncio.wait({counter})
    capture.free_the_disk()
    assert "cancelled" == (await capture.record())["error_category"]


async def test_a_scope_inside_the_application_may_end_a_send_that_waits(capture: Capture) -> None:
    capture.hold_the_disk()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(OPEN)
        with anyio.move_on_after(0.05) as inner:
            await send(piece(b"".join(EVENTS), more=False))
        assert inner.cancelled_caught
        capture.free_the_disk()

    async with capture.call(app) as call:
        await call.rest()
    assert b"".join(EVENTS) == call.body
    assert None is (await capture.record())["error_category"]


@pytest.mark.parametrize("spec_version", ["2.3", "2.4"])
@pytest.mark.parametrize("sent", [2, len(EVENTS)], ids=["in mid-stream", "after the terminal"])
async def test_a_client_that_leaves_a_starlette_stream(capture: Capture, spec_version: str, sent: int) -> None:
    closed = False

    async def body() -> AsyncIterator[bytes]:
        nonlocal closed
        try:
            for event in EVENTS[:sent]:
                yield event
            await asyncio.sleep(0.2)
            for _ in range(100):
                yield b": still here\n\n"
                await asyncio.sleep(0.01)
        finally:
            closed = True

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await Request(scope, receive).body()
        await StreamingResponse(body(), media_type="text/event-stream")(scope, receive, send)

    gone = False

    async def leaving(scope: Any, receive: Any, send: Any) -> None:
        async def send_to_who_is_there(message: Any) -> None:
            if gone:
                raise OSError("the client has left")
            await send(message)

        await capture.app(app)(scope, receive, send_to_who_is_there)

    version = {"asgi": {"version": "3.0", "spec_version": spec_version}}
    async with Exchange(leaving, PATH, b'{"model":"m","stream":true}', scope=version) as call:
        for _ in range(1 + sent):
            await call.message()
        gone = True
        call.disconnect()
        await asyncio.wait({call.task})
        if not call.task.cancelled():
            call.task.exception()
    record = await capture.record()
    assert b"".join(EVENTS[:sent]) == call.body
    if spec_version == "2.3":  # later ones leave the generator to the collector
        assert closed
    if sent == len(EVENTS):
        assert None is record["error_category"]
    else:
        assert record["error_category"] is not None
        assert record["response_raw"].startswith(b"".join(EVENTS[:sent]).decode())


async def test_a_server_that_refuses_the_terminal_piece_tells_the_application(capture: Capture) -> None:
    async def leaving(scope: Any, receive: Any, send: Any) -> None:
        async def send_deltas(message: Any) -> None:
            if message["type"] == "http.response.body" and b"[DONE]" in message["body"]:
                raise OSError("the client has left")
            await send(message)

        await capture.app(ScriptedModel(EVENTS))(scope, receive, send_deltas)

    async with Exchange(leaving, PATH) as call:
        with pytest.raises(OSError, match="has left"):
            await call.rest()
    assert None is (await capture.record())["error_category"]


@pytest.mark.parametrize("leaves", [True, False])
async def test_the_applications_own_error_is_the_one_that_goes_on(capture: Capture, leaves: bool) -> None:
    async def leaving(scope: Any, receive: Any, send: Any) -> None:
        async def send_deltas(message: Any) -> None:
            if leaves and message["type"] == "http.response.body" and b"[DONE]" in message["body"]:
                raise OSError("the client has left")
            await send(message)

        await capture.app(ScriptedModel([*EVENTS, LookupError("mine")]))(scope, receive, send_deltas)

    async with Exchange(leaving, PATH) as call:
        with pytest.raises(LookupError, match="mine"):
            await call.rest()
    assert None is (await capture.record())["error_category"]


class Stop(BaseException):
    """What a framework may throw to end everything."""


async def test_a_base_exception_is_recorded_and_goes_on(capture: Capture) -> None:
    async with capture.call(ScriptedModel([*DELTAS, Stop()])) as call:
        with pytest.raises(Stop):
            await call.rest()
    record = await capture.record()
    assert ("exception", b"".join(DELTAS)) == (record["error_category"], call.body)


def by_hand(capture: Capture) -> Any:
    """A call without a loop's task, advanced to its middle by hand."""

    class Never:
        def __await__(self) -> Generator[None, None, None]:
            yield

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(OPEN)
        await send(piece(DELTAS[0]))
        await Never()

    async def send(message: Any) -> None:
        pass

    scope = {"type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "headers": []}
    running = capture.app(app)(scope, None, send)  # type: ignore[arg-type]
    running.send(None)
    return running


async def test_a_call_closed_from_outside_is_recorded(capture: Capture) -> None:
    by_hand(capture).close()
    assert "cancelled" == (await capture.record())["error_category"]


def test_a_call_closed_when_its_loop_has_gone_is_recorded(tmp_path: Path) -> None:
    capture = Capture(tmp_path)

    async def begun() -> Any:
        return by_hand(capture)

    asyncio.run(begun()).close()
    assert "cancelled" == asyncio.run(capture.record())["error_category"]


async def test_a_call_cancelled_while_a_long_event_is_judged_is_recorded(capture: Capture) -> None:
    long = b"data: " + b'{"choices":[{"index":0,"delta":{"content":"%s"}}]}' % (b"x" * 3_000_000) + b"\n\n"
    async with capture.call(ScriptedModel([long, 60])) as call:
        await call.message()
        await asyncio.sleep(0)
        call.task.cancel()
        await asyncio.wait({call.task})
        record = await capture.record()
    assert "cancelled" == record["error_category"]


async def test_an_application_cancelled_while_it_lingers_was_complete(capture: Capture) -> None:
    async with capture.call(ScriptedModel([*EVENTS, 60])) as call:
        for _ in range(1 + len(EVENTS)):
            await call.message()
        record = await capture.record()
        call.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call.task
    assert (None, b"".join(EVENTS)) == (record["error_category"], call.body)
    assert [record] == capture.store.read("0-0")


async def test_an_application_that_never_waits_is_cut_all_the_same(capture: Capture) -> None:
    stopped = False

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(OPEN)
        for event in EVENTS:
            await send(piece(event))
        while not stopped:
            await send(piece(b": on and on %s\n\n" % (b"." * 8192)))
        await send(piece(b"", more=False))

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        async def send_and_wait(message: Any) -> None:  # as servers do, for their sockets
            await send(message)
            await asyncio.sleep(0.001)

        await capture.app(app)(scope, receive, send_and_wait)

    async with Exchange(waiting, PATH) as call:
        while EVENTS[-1] not in call.body:
            await call.message()
        record = await capture.record()
        stopped = True
        await call.rest()
    assert None is record["error_category"]
    assert call.body.startswith(b"".join(EVENTS))


async def test_an_application_that_floods_behind_the_terminal_waits_while_the_disk_does(capture: Capture) -> None:
    sent = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal sent
        await send(OPEN)
        for event in EVENTS:
            await send(piece(event))
        for _ in range(1000):
            await send(piece(bytes(65536)))
            sent += 65536
        await send(piece(b"", more=False))

    capture.hold_the_disk()
    async with capture.call(app) as call:
        await until_held(call, len(EVENTS))
        for _ in range(30):
            await asyncio.sleep(0.01)  # long enough for an unbounded flood, and no harm to a bounded one
        assert sent <= 2 * MOST_HELD_BYTES
        capture.free_the_disk()
        await call.rest()
    assert 1000 * 65536 == sent
    assert len(b"".join(EVENTS)) + sent == len(call.body)


async def test_what_is_held_is_what_was_sent_whatever_the_application_does_with_it_later(capture: Capture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(OPEN)
        message = piece(b"")
        for event in [*EVENTS, b": one\n\n", b": two\n\n"]:
            message["body"] = bytearray(event)
            await send(message)
            message["body"][:] = b"?" * len(event)
        await send(piece(b"", more=False))

    got = bytearray()

    async def copying(scope: Any, receive: Any, send: Any) -> None:
        async def send_copy(message: Any) -> None:  # as servers do, which write to their sockets
            got.extend(message.get("body", b""))
            await send({**message, "body": b""})

        await capture.app(app)(scope, receive, send_copy)

    async with Exchange(copying, PATH) as call:
        await call.rest()
    expected = b"".join([*EVENTS, b": one\n\n", b": two\n\n"])
    assert expected == bytes(got)
    assert expected.decode() == (await capture.record())["response_raw"]


async def test_trailers_and_second_ends_go_out_behind_the_first(capture: Capture) -> None:
    trailers = {"type": "http.response.trailers", "headers": [(b"x", b"1")], "more_trailers": False}
    messages = [*(piece(event) for event in EVENTS), trailers, piece(b"", more=False), piece(b"", more=False), trailers]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({**OPEN, "trailers": True})
        for message in messages:
            await send(message)

    async with capture.call(app) as call:
        assert messages == (await call.rest())[1:]
    assert None is (await capture.record())["error_category"]


async def test_a_plain_answer_waits_at_its_end_and_no_earlier(capture: Capture) -> None:
    capture.hold_the_disk()
    body = b'{"id":"c1"}'

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for letter in body:
            await send(piece(bytes([letter])))
        await send(piece(b"", more=False))

    async with capture.call(app) as call:
        await until_held(call, 1 + len(body))
        assert body == call.body
        capture.free_the_disk()
        assert [piece(b"", more=False)] == await call.rest()
    assert {"id": "c1"} == (await capture.record())["response"]


async def test_calls_go_on_after_a_call_was_cancelled(capture: Capture) -> None:
    async with capture.call(ScriptedModel([*DELTAS, 60])) as call:
        await until_held(call, 4)
    await capture.record()
    async with capture.call(ScriptedModel.of(answer("chat", "next"))) as call:
        await call.rest()
    assert ["cancelled", None] == [record["error_category"] for record in capture.store.read("0-0")]
