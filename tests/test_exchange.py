"""Applications and servers that do odd things within one exchange: the client gets the same, the record stays right."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import logging
import zlib
from collections import UserDict
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_gym import CaptureMiddleware, Settings
from otel_gym.sse import TerminalWatch
from otel_gym.testing import EVENT_STREAM, JSON, Exchange, ScriptedModel, answer, sse, stream
from otel_gym_jsonl import CaptureStore
from tests.conformance import corpus
from tests.conformance.run_cases import driver

PATHS = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages"}
EVENTS = stream("chat", "Hel", "lo")
OPEN = {"type": "http.response.start", "status": 200, "headers": list(EVENT_STREAM)}
END = {"type": "http.response.body", "body": b"", "more_body": False}
App = Callable[[Any, Any, Any], Awaitable[None]]


def piece(body: Any, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


class Capture:
    """A capture directory, and middleware that writes there."""

    def __init__(self, directory: Path) -> None:
        self.settings = Settings(observability_enabled=True, model_call_capture_dir=directory)
        self.store = CaptureStore(directory)

    def call(self, app: App, dialect: str = "chat", rollout_id: str = "0-0", **more: Any) -> Exchange:
        middleware = CaptureMiddleware(app, self.settings)
        return Exchange(middleware, f"/ng-rollout/{rollout_id}{PATHS[dialect]}", **more)

    def record(self, rollout_id: str = "0-0") -> dict[str, Any]:
        [record] = self.store.read(rollout_id)
        return record


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return Capture(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def capture(tmp_path: Path) -> Capture:
    return Capture(tmp_path)


def content(record: dict[str, Any]) -> Any:
    return record["response"]["choices"][0]["message"]["content"]


def saying(*messages: Any) -> App:
    """An application that reads the request and sends these messages, as they are."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        for message in messages:
            await send(message)

    return app


# ---- what applications send


@pytest.mark.parametrize("kind", [memoryview, bytearray, lambda data: memoryview(bytearray(data))])
async def test_bodies_may_be_any_bytes(capture: Capture, kind: Any) -> None:
    sent = [piece(kind(data)) for data in EVENTS]
    async with capture.call(saying(OPEN, *sent, END)) as call:
        got = await call.rest()
    assert [OPEN, *sent, END] == got
    assert ("Hello", None) == (content(capture.record()), capture.record()["error_category"])


async def test_headers_may_be_an_iterable_that_is_gone_through_once(capture: Capture) -> None:
    headers = [(b"content-type", b"text/event-stream"), (b"x-a", b"1"), (b"x-a", b"2")]
    async with capture.call(saying({**OPEN, "headers": iter(headers)}, *map(piece, EVENTS), END)) as call:
        start, *_ = await call.rest()
    assert (headers, "Hello") == (list(start["headers"]), content(capture.record()))


async def test_a_last_message_ends_the_call_though_the_application_goes_on(capture: Capture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await saying({**OPEN, "headers": list(JSON)}, piece(json.dumps(answer("chat", "hi")).encode(), False))(
            scope, receive, send
        )
        await asyncio.Event().wait()

    async with capture.call(app) as call:
        await call.message()
        last = await call.message()
        assert (answer("chat", "hi"), False) == (capture.record()["response"], call.task.done())
    assert last is not None
    assert answer("chat", "hi") == json.loads(last["body"])


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("spelling", [b"%d", b" %d", b"%d \t"])
async def test_the_announced_length_of_an_answer_is_its_end_too(capture: Capture, status: int, spelling: bytes) -> None:
    """As behind Starlette's BaseHTTPMiddleware: the whole body with `more_body` true, an empty last message later."""
    body = json.dumps(answer("chat", "hi")).encode()
    start = {**OPEN, "status": status, "headers": [*JSON, (b"Content-Length", spelling % len(body))]}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await saying(start, piece(body[:9]), piece(body[9:]))(scope, receive, send)
        await asyncio.Event().wait()

    async with capture.call(app) as call:
        assert [start, piece(body[:9]), piece(body[9:])] == [await call.message() for _ in range(3)]
        assert answer("chat", "hi") == capture.record()["response"]


@pytest.mark.parametrize("pieces", [EVENTS[:1], EVENTS[:3], EVENTS], ids=["one piece", "several", "a whole stream"])
async def test_the_announced_length_of_a_stream_is_its_end_without_a_terminal_event(
    capture: Capture, pieces: list[bytes]
) -> None:
    sent = [
        {**OPEN, "headers": [*EVENT_STREAM, (b"content-length", b"%d" % len(b"".join(pieces)))]},
        *map(piece, pieces),
    ]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await saying(*sent)(scope, receive, send)
        await asyncio.Event().wait()

    async with capture.call(app) as call:
        assert sent == [await call.message() for _ in sent]
        record = capture.record()
    assert (None if pieces is EVENTS else "stream_truncated") == record["error_category"]
    assert b"".join(pieces).decode() == record["response_raw"]


async def test_the_head_of_an_answer_without_a_body_waits_for_the_record(capture: Capture) -> None:
    start = {"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await saying(start)(scope, receive, send)
        await asyncio.Event().wait()

    async with capture.call(app) as call:
        assert start == await call.message()
        assert 401 == capture.record()["status_code"]


@pytest.mark.parametrize("length", [b"", b"x", b"-1", b"9999", b"1, 1", b"9" * 5000])
async def test_a_length_that_is_wrong_changes_nothing(capture: Capture, length: bytes) -> None:
    body = json.dumps(answer("chat", "hi")).encode()
    sent = [{**OPEN, "headers": [*JSON, (b"content-length", length)]}, piece(body), END]
    async with capture.call(saying(*sent)) as call:
        assert sent == await call.rest()
    assert (answer("chat", "hi"), None) == (capture.record()["response"], capture.record()["error_category"])


@pytest.mark.parametrize("length", [1, 100, 9999])
async def test_a_length_that_is_wrong_changes_nothing_in_a_stream(capture: Capture, length: int) -> None:
    sent = [{**OPEN, "headers": [*EVENT_STREAM, (b"content-length", b"%d" % length)]}, *map(piece, EVENTS), END]
    async with capture.call(saying(*sent)) as call:
        assert sent == await call.rest()
    assert ("Hello", None) == (content(capture.record()), capture.record()["error_category"])


async def test_what_comes_after_the_last_message_goes_out_behind_it(capture: Capture) -> None:
    trailers = {"type": "http.response.trailers", "headers": [(b"x-checksum", b"1")], "more_trailers": False}
    sent = [{**OPEN, "trailers": True}, *map(piece, EVENTS), END, piece(b"more", False), trailers]
    async with capture.call(saying(*sent)) as call:
        assert sent == await call.rest()
    assert b"".join(EVENTS).decode() == capture.record()["response_raw"]


async def test_an_application_may_return_without_an_end(capture: Capture) -> None:
    sent = [OPEN, *map(piece, EVENTS)]
    async with capture.call(saying(*sent)) as call:
        assert sent == await call.rest()
    assert ("Hello", None) == (content(capture.record()), capture.record()["error_category"])


async def test_sends_of_two_tasks_go_out_in_their_order(capture: Capture) -> None:
    """A stream's keep-alive comes from another task, while a long event is looked at off the loop."""
    long = sse({"id": "c1", "choices": [{"index": 0, "delta": {"content": '"error": [DONE] ' * 4000}}]})
    sent = [piece(long), piece(b": ping\n\n"), *map(piece, EVENTS), END]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(OPEN)
        await asyncio.gather(*map(send, sent))

    async with capture.call(app) as call:
        assert [OPEN, *sent] == await call.rest()
    record = capture.record()
    assert b"".join(message["body"] for message in sent).decode() == record["response_raw"]
    assert ('"error": [DONE] ' * 4000 + "Hello", None) == (content(record), record["error_category"])


async def test_an_application_waits_while_its_client_does_not_take(capture: Capture) -> None:
    may_go_on = asyncio.Event()
    sent: list[Any] = []

    async def slow_client(message: Any) -> None:
        sent.append(message)
        await may_go_on.wait()

    call = capture.call(saying(OPEN, *map(piece, EVENTS), END))
    serving = asyncio.ensure_future(call._app(call.scope, call._receive, slow_client))
    for _ in range(20):
        await asyncio.sleep(0)
    assert [OPEN] == sent
    may_go_on.set()
    await serving
    assert [OPEN, *map(piece, EVENTS), END] == sent


async def test_a_compressed_stream_is_held_at_its_end_too(capture: Capture) -> None:
    never = asyncio.Event()
    data = gzip.compress(b"".join(EVENTS))
    headers = (*EVENT_STREAM, (b"content-encoding", b"gzip"))
    async with capture.call(ScriptedModel([data[:40], data[40:], never], headers=headers)) as call:
        await call.message()
        await call.message()
        assert data[:40] == call.body
        await call.message()
        assert (data, "Hello") == (call.body, content(capture.record()))


async def test_a_bomb_in_a_stream_passes_and_stays_outside(capture: Capture, caplog: pytest.LogCaptureFixture) -> None:
    """Half a gigabyte of comment, in half a megabyte; it is judged when the body has ended, within the limit."""
    packed = zlib.compressobj(wbits=31)
    comment = b": " + b"x" * ((1 << 20) - 2)
    data = b"".join(
        [packed.compress(comment) for _ in range(512)] + [packed.compress(b"\n\n" + EVENTS[0]), packed.flush()]
    )
    headers = (*EVENT_STREAM, (b"content-encoding", b"gzip"))
    async with capture.call(ScriptedModel([data], headers=headers)) as call:
        await call.rest()
    record = capture.record()
    assert (data, None) == (call.body, record["response"])
    assert capture.store.is_incomplete("0-0")
    assert "a stream cannot be watched" in caplog.text


async def test_a_fault_of_ours_costs_no_client_its_answer(
    capture: Capture, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def feed(self: TerminalWatch, chunk: bytes) -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr(TerminalWatch, "feed", feed)
    async with capture.call(ScriptedModel(EVENTS)) as call:
        await call.rest()
    assert (b"".join(EVENTS), "Hello") == (call.body, content(capture.record()))
    assert [logging.ERROR] == [entry.levelno for entry in caplog.records if entry.levelno == logging.ERROR]


# ---- scope state

OUTCOME = {
    "upstream_attempted": True,
    "response_source": "upstream",
    "upstream_status_code": 200,
    "local_response_reason": None,
}


def stateful(change: Callable[[Any], None]) -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        change(scope)
        await ScriptedModel.of(answer("chat", "hi"))(scope, receive, send)

    return app


def set_outcome(scope: Any) -> None:
    scope["state"]["nemo_gym_model_execution"] = OUTCOME


@pytest.mark.parametrize(
    ("change", "state", "recorded"),
    [
        (set_outcome, {}, True),
        (set_outcome, {"state": {"pool": 1}}, True),
        (lambda scope: scope.update(state={"nemo_gym_model_execution": OUTCOME}), {}, True),
        (lambda scope: scope.pop("state"), {}, False),
        (lambda scope: None, {"state": None}, False),
        (lambda scope: scope.update(state=[1]), {}, False),
    ],
)
async def test_the_outcome_is_taken_from_scope_state_whatever_became_of_it(
    capture: Capture, change: Callable[[Any], None], state: dict[str, Any], recorded: bool
) -> None:
    async with capture.call(stateful(change), scope=state) as call:
        await call.rest()
    record = capture.record()
    assert (OUTCOME if recorded else {}) == {key: record[key] for key in OUTCOME if key in record}
    assert answer("chat", "hi") == record["response"]


class UnreadableState(dict[str, Any]):
    """A state whose values are made when asked for, and cannot be."""

    def get(self, key: str, default: Any = None) -> Any:
        raise RuntimeError(key)


class UnreadableOutcome(UserDict[str, Any]):
    """What a mapping over a closed connection, say, does."""

    def __iter__(self) -> Iterator[str]:
        raise ConnectionError("closed")


@pytest.mark.parametrize("state", [UnreadableState(), {"nemo_gym_model_execution": UnreadableOutcome(OUTCOME)}])
async def test_an_outcome_that_cannot_be_read_costs_only_itself(
    capture: Capture, state: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with capture.call(stateful(lambda scope: scope.update(state=state))) as call:
        await call.rest()
    assert answer("chat", "hi") == json.loads(call.body)
    assert answer("chat", "hi") == capture.record()["response"]
    assert ["otel_gym.exchange"] == [entry.name for entry in caplog.records if entry.levelno == logging.ERROR]


async def test_an_application_may_serve_a_copy_of_the_scope(capture: Capture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        copied = {**scope, "path": "/elsewhere", "headers": []}
        await stateful(set_outcome)(copied, receive, send)

    async with capture.call(app) as call:
        await call.rest()
    assert "upstream" == capture.record()["response_source"]


# ---- clients that leave


class ClientGoneError(OSError):
    pass


def leaving_after(count: int, sent: list[Any]) -> Callable[[Any], Awaitable[None]]:
    async def send(message: Any) -> None:
        if len(sent) == count:
            raise ClientGoneError
        sent.append(message)

    return send


@pytest.mark.parametrize("count", range(len(EVENTS) + 2))
async def test_an_application_is_told_that_its_client_has_left(capture: Capture, count: int) -> None:
    sent: list[Any] = []
    call = capture.call(saying(OPEN, *map(piece, EVENTS), END))
    with pytest.raises(ClientGoneError):
        await call._app(call.scope, call._receive, leaving_after(count, sent))
    record = capture.record()
    assert [OPEN, *map(piece, EVENTS), END][:count] == sent
    whole = count >= len(EVENTS)  # the terminal event had come from the application
    assert (None if whole else "exception") == record["error_category"]


async def test_a_client_that_leaves_while_an_application_lingers_is_no_error_of_ours(
    capture: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    told = asyncio.Event()
    sent: list[Any] = []
    gone = leaving_after(len(EVENTS), sent)

    async def send(message: Any) -> None:
        try:
            await gone(message)
        except ClientGoneError:
            told.set()
            raise

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await saying(OPEN, *map(piece, EVENTS))(scope, receive, send)
        await told.wait()
        await asyncio.sleep(0)
        with pytest.raises(ClientGoneError):
            await send(END)

    call = capture.call(app)
    await call._app(call.scope, call._receive, send)
    del call
    gc.collect()
    assert ("Hello", []) == (content(capture.record()), [entry.message for entry in caplog.records])


# ---- any cut of the bytes


def streams() -> Iterator[corpus.Case]:
    for topic in ("stream_chat", "stream_messages", "stream_responses", "sse_framing"):
        cases = [case for case in corpus.all_cases() if case.topic == topic and set(case.spec["app"]) <= PLAIN_KEYS]
        yield from cases[:: max(1, len(cases) // 6)]


PLAIN_KEYS = {"status", "headers", "chunks"}
SAMPLE = list(streams())
VOLATILE = ("model_call_id", "started_at", "completed_at", "latency_ms", "latency_ttft_ms")


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(edges)] or [b""]


async def recorded(shared: Capture, case: corpus.Case, request: list[bytes], body: list[bytes]) -> dict[str, Any]:
    spec = case.spec
    dialect = next(dialect for dialect, path in PATHS.items() if path in spec["path"])
    headers = [(name.encode(), value.encode()) for name, value in spec["app"]["headers"]]
    model = ScriptedModel(body, status=spec["app"].get("status", 200), headers=headers)
    rollout_id = f"cut-{next(NUMBERS)}"
    async with shared.call(model, dialect, rollout_id, body=request) as call:
        await call.rest()
    assert (b"".join(body), [b"".join(request)]) == (call.body, model.bodies)
    return {key: value for key, value in shared.record(rollout_id).items() if key not in VOLATILE}


NUMBERS = iter(range(1 << 30))
CUTS = st.lists(st.integers(0, 1 << 20), max_size=40)


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.id)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(request_cuts=CUTS, body_cuts=CUTS)
async def test_no_cut_of_request_or_answer_changes_the_record(
    shared: Capture, case: corpus.Case, request_cuts: list[int], body_cuts: list[int]
) -> None:
    request = driver.to_bytes(case.spec["request_body"])
    body = b"".join(driver.to_bytes(chunk) for chunk in case.spec["app"]["chunks"])
    whole = await recorded(shared, case, [request], [body])
    assert whole == await recorded(shared, case, cut(request, request_cuts), cut(body, body_cuts))
