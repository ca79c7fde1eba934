"""Training calls through the gateway, in front of a worker that stages their tokens."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from otel_gym import Settings
from otel_gym.gateway import Gateway, Staging, StagingLog, Upstream, Upstreams
from otel_gym.sse import events
from otel_gym.staging.chains import verify_chain
from otel_gym.staging.replay import INTERNAL_FIELDS, KEEP_ALIVE
from otel_gym.testing import Exchange
from otel_gym_jsonl import CaptureStore
from tests.gateway.gateways import PATHS, until
from tests.gateway.workers import Worker
from tests.staging.sdks import dump, streamed, whole

PREFIX = "/ng-rollout/0-0/training-token-capture"
TOOL = {"name": "population", "description": "of a city", "parameters": {"type": "object", "properties": {}}}
CHAT_TOOLS = [{"type": "function", "function": TOOL}]
TOOLS: dict[str, Any] = {
    "chat": CHAT_TOOLS,
    "responses": [{"type": "function", **TOOL}],
    "messages": [{"name": "population", "input_schema": TOOL["parameters"]}],
}


class Running:
    """A gateway, its worker, and what both left."""

    def __init__(self, app: Gateway, worker: Worker, log: StagingLog, captures: Path) -> None:
        self.app = app
        self.worker = worker
        self.log = log
        self.store = CaptureStore(captures)

    def lines(self, rollout_id: str = "0-0") -> list[dict[str, Any]]:
        return self.log.read(rollout_id)

    def reasons(self) -> list[tuple[str, str | None]]:
        return [(line["disposition"], line.get("reason")) for line in self.lines()]


@contextlib.asynccontextmanager
async def staging(
    folder: Path, keep_alive_s: float = 15.0, capture: bool = True, **more: Any
) -> AsyncIterator[Running]:
    worker, log = Worker(folder / "staged"), StagingLog(folder / "log")
    captures = folder / "captures"
    settings = Settings(observability_enabled=capture, model_call_capture_dir=captures)
    client = httpx.AsyncClient(transport=worker)
    upstreams = Upstreams([Upstream("http://worker.test/v1")], "upstream")
    app = Gateway(client, upstreams, settings, staging=Staging(log, keep_alive_s), **more)
    try:
        yield Running(app, worker, log, captures)
    finally:
        worker.released.set()
        await app.aclose()


def request(dialect: str, text: str = "hi", stream: bool = True, **more: Any) -> bytes:
    said: Any = [{"role": "user", "content": text}]
    conversation = {"input": said} if dialect == "responses" else {"messages": said}
    return json.dumps({"model": "m", "max_tokens": 99, "stream": stream, **conversation, **more}).encode()


async def call(app: Any, dialect: str, body: bytes, prefix: str = PREFIX) -> tuple[int, bytes]:
    async with Exchange(app, prefix + PATHS[dialect], body) as exchange:
        (start, *_) = await exchange.rest()
    return start["status"], exchange.body


def keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*(keys(item) for item in value.values()))
    return set().union(*(keys(item) for item in value)) if isinstance(value, list) else set()


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize("dialect", PATHS)
async def test_the_sdks_read_the_same_with_and_without_streaming_and_no_token_comes_out(
    tmp_path: Path, dialect: str, capture: bool
) -> None:
    async with staging(tmp_path, capture=capture) as running:
        asked = {"text": "call the tool", "tools": TOOLS[dialect]}
        status, body = await call(running.app, dialect, request(dialect, **asked))
        said = streamed(dialect, [body])
        plain_status, plain = await call(running.app, dialect, request(dialect, stream=False, **asked))
        read = whole(dialect, json.loads(plain))
    assert (200, 200) == (status, plain_status)
    assert anonymous(dump(read)) == anonymous(dump(said))
    found = set().union(*(keys(event.payload) for event in events(body))) | keys(json.loads(plain))
    assert found & INTERNAL_FIELDS <= ({"logprobs"} if dialect == "responses" else set())
    assert b"token_id" not in body + plain
    first, second = running.lines()
    assert ["staged", "staged"] == [first["disposition"], second["disposition"]]
    response_id = json.loads(plain)["id"]
    assert response_id == second["call"]["response_id"]
    records = running.store.read("0-0")
    if capture:
        assert [line["call"]["model_call_id"] for line in (first, second)] == [one["model_call_id"] for one in records]
        assert [json.loads(request(dialect, **asked)), None, True, "upstream", 200] == [
            records[0][key]
            for key in ("request", "error_category", "upstream_attempted", "response_source", "upstream_status_code")
        ]
        assert json.loads(plain) == records[1]["response"]
    else:
        assert [] == records


def anonymous(answer: Any) -> Any:
    """An answer without the ids that the worker made for it."""
    if isinstance(answer, dict):
        return {
            key: anonymous(value) for key, value in answer.items() if key not in ("id", "call_id", "stream", "item_id")
        }
    return [anonymous(item) for item in answer] if isinstance(answer, list) else answer


async def test_the_worker_is_asked_for_a_whole_answer_with_its_tokens(tmp_path: Path) -> None:
    async with staging(tmp_path) as running:
        headers = [(b"authorization", b"Bearer k"), (b"accept", b"text/event-stream"), (b"accept-encoding", b"zstd")]
        async with Exchange(
            running.app, f"{PREFIX}/v1/responses?x=1", request("responses"), headers=headers
        ) as exchange:
            await exchange.rest()
    (asked,), (sent,) = running.worker.asked, running.worker.headers
    wanted = {"stream": False, "logprobs": True, "top_logprobs": 0, "return_tokens_as_token_ids": True}
    assert wanted == {key: asked[key] for key in wanted}
    assert [{"role": "user", "content": "hi"}] == asked["messages"]
    assert ("0-0", "text") == (asked["ng_capture"]["rollout_id"], asked["ng_capture"]["mode"])
    assert ("Bearer k", "application/json") == (sent["authorization"], sent["content-type"])
    assert {"accept", "accept-encoding"}.isdisjoint(sent)


@pytest.mark.parametrize("dialect", PATHS)
async def test_calls_of_a_conversation_are_a_chain_whose_hashes_agree(tmp_path: Path, dialect: str) -> None:
    async with staging(tmp_path) as running:
        history: list[Any] = [{"role": "user", "content": "one"}]
        conversation = "input" if dialect == "responses" else "messages"
        for word in ("two", "three"):
            body = json.dumps({"model": "m", "max_tokens": 9, conversation: history}).encode()
            _, answered = await call(running.app, dialect, body)
            answer = json.loads(answered)
            if dialect == "chat":
                history.append(answer["choices"][0]["message"])
            elif dialect == "messages":
                history.append({"role": "assistant", "content": answer["content"]})
            else:
                history += answer["output"]
            history.append({"role": "user", "content": word})
        await call(running.app, dialect, json.dumps({"model": "m", "max_tokens": 9, conversation: history}).encode())
        rows = [line["call"] for line in running.lines()]
        records = [running.worker.staged.read(row["staging_key"]).record for row in rows]
    assert [None, rows[0]["model_call_id"], rows[1]["model_call_id"]] == [row["parent_call_id"] for row in rows]
    assert ["text", "token_in", "token_in"] == [row["mode"] for row in rows]
    assert rows[-1]["cum_len"] == len(verify_chain(records))
    chain = running.worker.asked[-1]["ng_capture"]["staging_chain"]
    assert [row["staging_key"] for row in rows[:-1]] == chain


async def test_namespaced_tools_are_flat_for_the_worker_and_the_clients_own_again(tmp_path: Path) -> None:
    tools = [{"type": "namespace", "name": "crm", "tools": TOOLS["responses"]}]
    async with staging(tmp_path) as running:
        _, body = await call(running.app, "responses", request("responses", "call the tool", stream=False, tools=tools))
    assert ["crm__population"] == [tool["function"]["name"] for tool in running.worker.asked[0]["tools"]]
    (made,) = [item for item in json.loads(body)["output"] if item["type"] == "function_call"]
    assert ("crm", "population") == (made["namespace"], made["name"])


# ---------------------------------------------------------------- the order


@pytest.mark.parametrize("dialect", PATHS)
async def test_a_client_that_waits_gets_signs_of_life_and_its_answer_once_it_is_recorded(
    tmp_path: Path, dialect: str
) -> None:
    async with staging(tmp_path, keep_alive_s=0.03) as running:
        running.worker.released.clear()
        async with Exchange(running.app, PREFIX + PATHS[dialect], request(dialect)) as exchange:
            start = await exchange.message()
            alive = [await exchange.message() for _ in range(3)]
            assert [KEEP_ALIVE] * 3 == [message and message["body"] for message in alive]
            assert [] == running.lines()
            running.worker.released.set()
            while (message := await exchange.message()) is not None and message.get("body") == KEEP_ALIVE:
                pass
            assert [("staged", None)] == running.reasons()
            await exchange.rest()
    assert start is not None
    assert (200, b"text/event-stream; charset=utf-8") == (start["status"], dict(start["headers"])[b"content-type"])
    assert streamed(dialect, [exchange.body])


async def test_a_client_without_streaming_gets_no_signs_of_life(tmp_path: Path) -> None:
    async with staging(tmp_path, keep_alive_s=0.01) as running:
        running.worker.released.clear()
        async with Exchange(running.app, PREFIX + PATHS["chat"], request("chat", stream=False)) as exchange:
            await until(lambda: bool(running.worker.asked))
            await asyncio.sleep(0.05)
            running.worker.released.set()
            (start, _) = await exchange.rest()
    assert (b"application/json", {"logprobs"}) != (
        dict(start["headers"])[b"content-type"],
        keys(json.loads(exchange.body)),
    )
    assert exchange.body.startswith(b"{")


# ---------------------------------------------------------------- failures of the staging


OTHER = {"rollout_id": "0-0", "model_call_id": "another", "prev_len": 0, "delta_len": 0, "cum_len": 0}


@pytest.mark.parametrize(
    ("coords", "orders", "reason"),
    [
        (None, {}, "worker_response_missing_commit_coordinates"),
        ({"rollout_id": "0-0"}, {}, "invalid_worker_commit_coordinates"),
        ({**OTHER, "weight_version": 1, "disposition": "capture_failed"}, {}, "invalid_worker_commit_coordinates"),
        ("staged", {}, "invalid_worker_commit_coordinates"),
        (..., {"fail_every": 1}, "worker_capture_failed"),
    ],
)
@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_whose_staging_failed_is_recorded_with_its_reason_and_answered(
    tmp_path: Path, coords: Any, orders: dict[str, Any], reason: str, capture: bool, stream: bool
) -> None:
    async with staging(tmp_path, capture=capture) as running:
        running.worker.changed = {} if coords is ... else {"ng_commit_coords": coords}
        running.worker.sink.orders = orders
        status, body = await call(running.app, "chat", request("chat", stream=stream))
    assert (200, True) == (status, b"I have read" in body)
    assert [("failed", reason)] == running.reasons()
    (line,) = running.lines()
    assert running.worker.asked[0]["ng_capture"]["model_call_id"] == line["model_call_id"]


@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize("keep_alive_s", [15.0, 0.02])
@pytest.mark.parametrize("dialect", ["responses", "messages"])
async def test_an_answer_that_cannot_be_given_is_recorded_before_the_client_hears_of_it(
    tmp_path: Path, dialect: str, keep_alive_s: float, capture: bool
) -> None:
    async with staging(tmp_path, keep_alive_s, capture) as running:
        running.worker.changed = {"choices": [{"message": {"role": "assistant", "content": [{"type": "audio"}]}}]}
        running.worker.released.clear()
        async with Exchange(running.app, PREFIX + PATHS[dialect], request(dialect)) as exchange:
            await until(lambda: bool(running.worker.asked))
            if keep_alive_s < 1:
                await exchange.message()
            running.worker.released.set()
            terminal = b"response.failed" if dialect == "responses" else b'"type":"error"'
            while terminal not in exchange.body:
                await exchange.message()
            assert [("failed", "conversion_failed")] == running.reasons()
            await exchange.rest()
    assert b"The worker's answer cannot be given in this API." in exchange.body
    assert [] == running.app._staging.ledger.calls("0-0")  # type: ignore[union-attr]  # there is one
    assert ["upstream_error"] * capture == [record["error_category"] for record in running.store.read("0-0")]


@pytest.mark.parametrize(
    ("raw", "error", "status", "reason"),
    [
        ((429, "application/json", b'{"error":{"message":"slow down","code":"x"}}'), None, 429, "worker_error"),
        ((500, "text/plain", b"oh"), None, 500, "worker_error"),
        ((200, "text/event-stream", b"data: {}\n\n"), None, 502, "worker_streamed"),
        ((200, "application/json", b"[]"), None, 502, "worker_answer_unreadable"),
        ((200, "application/json", b'{"choices":[]}'), None, 502, "conversion_failed"),
        (None, httpx.ReadTimeout("slow"), 504, "upstream_timeout"),
        (None, httpx.ConnectError("no"), 502, "upstream_unreachable"),
    ],
)
async def test_a_worker_that_gives_no_answer_is_recorded_and_said_by_status_or_terminal_event(
    tmp_path: Path, raw: Any, error: Exception | None, status: int, reason: str
) -> None:
    async with staging(tmp_path, keep_alive_s=0.02) as running:
        running.worker.raw, running.worker.error = raw, error
        got, body = await call(running.app, "messages", request("messages", stream=False))
        assert (status, "error") == (got, json.loads(body)["type"])
        running.worker.released.clear()
        async with Exchange(running.app, PREFIX + PATHS["responses"], request("responses")) as exchange:
            (start, _) = await exchange.message(), await exchange.message()
            running.worker.released.set()
            await exchange.rest()
    assert start is not None
    assert (200, True) == (start["status"], b"event: response.failed" in exchange.body)
    assert [("failed", reason)] * 2 == running.reasons()
    if raw and raw[0] == 429:
        assert "slow down" == json.loads(body)["error"]["message"]
        assert b"slow down" in exchange.body


@pytest.mark.parametrize("body", [b"no json", b"[]", request("messages", messages=[{"role": "user", "content": 5}])])
async def test_a_request_that_cannot_be_asked_is_400_and_spends_nothing(tmp_path: Path, body: bytes) -> None:
    async with staging(tmp_path) as running:
        status, answered = await call(running.app, "messages", body)
    assert (400, "invalid_request_error") == (status, json.loads(answered)["error"]["type"])
    assert ([], []) == (running.lines(), running.worker.asked)
    (record,) = running.store.read("0-0")
    assert (False, "local", "invalid_request") == (
        record["upstream_attempted"],
        record["response_source"],
        record["local_response_reason"],
    )


async def test_a_client_that_leaves_cancels_the_worker_and_is_recorded(tmp_path: Path) -> None:
    async with staging(tmp_path, keep_alive_s=0.02) as running:
        running.worker.released.clear()
        async with Exchange(running.app, PREFIX + PATHS["chat"], request("chat")) as exchange:
            await exchange.message()
            await exchange.message()
            exchange.disconnect()
            await exchange.task
    assert 1 == running.worker.cancelled
    assert [("failed", "cancelled")] == running.reasons()
    assert [(200, "cancelled")] == [(one["status_code"], one["error_category"]) for one in running.store.read("0-0")]


async def test_an_attempt_after_a_failed_one_is_a_call_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_gym.gateway.attempts.FIRST_WAIT_S", 0.01)
    async with staging(tmp_path, retries=1) as running:
        running.worker.error = httpx.ConnectError("no")
        task = asyncio.ensure_future(call(running.app, "chat", request("chat")))
        await until(lambda: bool(running.lines()))
        running.worker.error = None
        status, _ = await task
    assert (200, [("failed", "upstream_unreachable"), ("staged", None)]) == (status, running.reasons())
    marks = [(one["status_code"], one["local_response_reason"]) for one in running.store.read("0-0")]
    assert [(502, "attempt_1_retried"), (200, "attempt_2")] == marks


# ---------------------------------------------------------------- other calls


async def test_calls_without_the_segment_pass_as_they_came(tmp_path: Path) -> None:
    def serve(asked: httpx.Request) -> httpx.Response:
        target = json.dumps({"target": asked.extensions["target"].decode()})
        return httpx.Response(200, stream=httpx.ByteStream(target.encode()))

    client = httpx.AsyncClient(transport=httpx.MockTransport(serve))
    log = StagingLog(tmp_path / "log")
    settings = Settings(observability_enabled=False)
    app = Gateway(client, Upstreams([Upstream("http://w.test")]), settings, staging=Staging(log))
    for prefix in ("/ng-rollout/0-0", "", "/ng-rollout/-odd/training-token-capture"):
        async with Exchange(app, f"{prefix}/v1/messages?beta=true", b"any") as exchange:
            await exchange.rest()
        assert {"target": "/v1/messages?beta=true"} == json.loads(exchange.body)
    assert [] == log.read("0-0")
    async with Exchange(app, f"{PREFIX}/v1/completions", b"any") as exchange:
        await exchange.rest()
    await app.aclose()
    (line,) = log.read("0-0")
    assert ("failed", "", "unstaged_call") == (line["disposition"], line["model_call_id"], line["reason"])
