"""`otel-gym gateway --staging-log` as a process, in front of the example worker that stages tokens, by the SDKs."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from anthropic import InternalServerError
from openai import NotFoundError

from otel_gym import Settings
from otel_gym.gateway import Gateway, Staging, StagingLog, Upstream, Upstreams, make_client
from otel_gym.staging import CaptureAdmission, CommitCoords, StagedCallRecord, StagedCalls, verify_chain
from otel_gym.staging.compactions import summary_of
from otel_gym.staging.replay import INTERNAL_FIELDS, KEEP_ALIVE
from otel_gym.testing import Exchange
from otel_gym_jsonl import CaptureStore
from tests.gateway.conversations import CALL, Clients
from tests.gateway.gateways import PATHS
from tests.gateway.raw_upstream import Connection, http, playing
from tests.gateway.test_process import request as asking
from tests.gateway.test_process import without_chunks
from tests.gateway.test_staged import anonymous
from tests.gateway.trained import STAGED_BY, Trained, gateway, trained, until_it_listens, worker_command
from tests.ports import free_port
from tests.servers.processes import running
from tests.servers.wire import exchange
from tests.staging.sdks import dump, streamed

pytestmark = pytest.mark.servers

ROLLOUTS, CALLS, AT_ONCE, ONE_IN = 12, 10, 6, 20


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    with trained(tmp_path_factory.mktemp("trained")) as found:
        yield found


@pytest.fixture(scope="module")
def unobserved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    """The same with capture off."""
    with trained(tmp_path_factory.mktemp("unobserved"), capture=False) as found:
        yield found


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    async with Clients() as found:
        yield found


def read(text: str) -> str:
    return f"I have read {json.dumps(text)}."


# ---------------------------------------------------------------- chains


async def test_conversations_with_tools_are_chains_and_each_loss_has_its_reason(
    served: Trained, clients: Clients
) -> None:
    turns = asyncio.Semaphore(AT_ONCE)

    async def roll_out(number: int) -> None:
        async with turns:
            dialect = list(PATHS)[number % 3]
            conversation = clients.conversation(dialect, served.url(f"tools-{number}"))
            for turn in range(CALLS):
                text = CALL if turn % 4 == 1 else f"rollout {number}, turn {turn}"
                answer = await conversation.say(text, stream=(number + turn) % 2 == 0)
                assert read(text) == conversation.text(answer)

    before = Counter(served.worker_log.read_text().splitlines())
    served.tell(fail_every=ONE_IN)
    try:
        await asyncio.gather(*(roll_out(number) for number in range(ROLLOUTS)))
    finally:
        served.tell()
    reasons: Counter[str] = Counter()
    for rollout_id in (f"tools-{number}" for number in range(ROLLOUTS)):
        rows, failures = served.rows(rollout_id), served.failures(rollout_id)
        chain = served.chain(rollout_id)
        # A call that is not staged is no parent; all others follow one another.
        assert [row["model_call_id"] for row in rows] == [record.model_call_id for record in chain]
        assert rows[-1]["cum_len"] == len(verify_chain(chain))
        assert CALLS == len(rows) + len(failures)
        assert sorted(row["staging_key"] for row in rows) == served.staged.staging_keys(rollout_id)
        lines = served.log.read(rollout_id)
        logged = [line["call"]["model_call_id"] if "call" in line else line["model_call_id"] for line in lines]
        assert [record["model_call_id"] for record in served.store.read(rollout_id)] == logged
        reasons.update(failures)
    lost = ROLLOUTS * CALLS // ONE_IN
    assert {"worker_capture_failed": lost} == reasons
    said = "\n".join((Counter(served.worker_log.read_text().splitlines()) - before).elements())
    assert lost == sum(said.count(f"the sink was told to {what}") for what in ("fail", "refuse"))


# ---------------------------------------------------------------- what clients get


@pytest.mark.parametrize("server", ["served", "unobserved"])
@pytest.mark.parametrize("dialect", PATHS)
async def test_the_sdks_get_the_same_message_streamed_and_whole(
    clients: Clients, dialect: str, server: str, request: pytest.FixtureRequest
) -> None:
    found: Trained = request.getfixturevalue(server)
    conversations = [clients.conversation(dialect, found.url(f"same-{dialect}-{stream}")) for stream in (True, False)]
    for conversation, stream in zip(conversations, (True, False), strict=True):
        for text in ("hé", CALL, "717710", "and now?"):
            assert read(text) == conversation.text(await conversation.say(text, stream))
    one, other = (anonymous(without_links(conversation.history)) for conversation in conversations)
    assert one == other
    for rollout_id in (f"same-{dialect}-{stream}" for stream in (True, False)):
        assert [] == found.failures(rollout_id)
        assert 4 == len(found.chain(rollout_id))
        assert (4 if server == "served" else 0) == len(found.store.read(rollout_id))


def without_links(history: Any) -> Any:
    """A history without the ids by which results name their calls, and without nulls, which the SDKs add."""
    if isinstance(history, dict):
        kept = {key: value for key, value in history.items() if key not in ("tool_call_id", "tool_use_id")}
        return {key: without_links(value) for key, value in kept.items() if value is not None}
    return [without_links(item) for item in history] if isinstance(history, list) else history


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("fails", [0, 1])
def test_no_internal_field_is_in_any_byte_that_a_client_gets(
    served: Trained, dialect: str, stream: bool, fails: int
) -> None:
    rollout_id = f"bytes-{dialect}-{stream}-{fails}"
    conversation = "input" if dialect == "responses" else "messages"
    tools: Any = {"chat": [{"type": "function", "function": {"name": "f"}}], "messages": [], "responses": []}
    asked = {"model": "m", "max_tokens": 9, "stream": stream, conversation: [{"role": "user", "content": CALL}]}
    if tools[dialect]:
        asked |= {"tools": tools[dialect], "logprobs": True, "stream_options": {"include_usage": True}}
    served.tell(fail_every=fails)
    try:
        sent = asking(STAGED_BY.format(rollout_id) + PATHS[dialect], asked)
        got = without_chunks(exchange(served.port, [sent]))
    finally:
        served.tell()
    assert got.startswith(b"HTTP/1.1 200")
    assert b"I have" in got
    # The API itself has an empty list of that name in each text of a response.
    left = got.replace(b'"logprobs":[]', b"") if dialect == "responses" else got
    names = [*INTERNAL_FIELDS, "token_id", "ng_capture", '"ng_', "staging", "capture_failed", "log_prob"]
    assert [] == [name for name in names if name.encode() in left]
    assert ["worker_capture_failed"] * fails == served.failures(rollout_id)


async def test_a_compaction_is_streamed_and_a_new_chain_begins_after_it(served: Trained, clients: Clients) -> None:
    conversation = clients.conversation("responses", served.url("compacted"))
    await conversation.say("one", stream=False)
    await conversation.say(CALL, stream=True)
    await conversation.say("717710", stream=True)
    asked = {"model": "m", "input": [*conversation.history, {"type": "compaction_trigger"}]}
    last = None
    async for event in await conversation.client.responses.create(**asked, stream=True):
        last = event
    assert last is not None
    (item,) = last.response.output
    assert summary_of(item.to_dict()).startswith("I have read")
    assert item.to_dict() == served.store.read("compacted")[-1]["response"]["output"][0]
    conversation.history.append(item.to_dict())
    assert read("two") == conversation.text(await conversation.say("two", stream=True))
    assert read("three") == conversation.text(await conversation.say("three", stream=False))
    rows = served.rows("compacted")
    ids = [row["model_call_id"] for row in rows]
    assert [None, *ids[:3], None, ids[4]] == [row["parent_call_id"] for row in rows]
    assert 2 == len(verify_all(served.chain("compacted")))


def verify_all(chain: list[StagedCallRecord]) -> list[StagedCallRecord]:
    assert verify_chain(chain)
    return chain


async def test_the_path_that_compacts_is_not_the_workers_and_spends_nothing(served: Trained, clients: Clients) -> None:
    client = clients.conversation("responses", served.url("elsewhere")).client
    with pytest.raises(NotFoundError):
        await client.responses.compact(model="m", input="hi")
    assert [] == served.log.read("elsewhere")


# ---------------------------------------------------------------- workers that fail, stall, die


def misbehaving(asked: dict[str, Any]) -> bytes:
    """What a bad worker answers; the client's text says how bad it is."""
    admission = CaptureAdmission.model_validate(asked["ng_capture"])
    failed = CommitCoords(
        rollout_id=admission.rollout_id,
        model_call_id=admission.model_call_id,
        prev_len=0,
        delta_len=0,
        cum_len=0,
        weight_version=1,
        disposition="capture_failed",
    ).model_dump(mode="json")
    coords: Any = {
        "missing": None,
        "failed": failed,
        "of another call": {**failed, "model_call_id": "another"},
        "staged without digest": {**failed, "disposition": "staged"},
        "no object": "staged",
    }
    how = asked["messages"][0]["content"]
    message: dict[str, Any] = {"role": "assistant", "content": "hi", "generation_token_ids": [1]}
    if how == "cannot be said":
        message["content"] = [{"type": "audio"}]
    answer = {"id": "chatcmpl-1", "model": "m", "choices": [{"message": message, "finish_reason": "stop"}]}
    if how in coords:
        answer["ng_commit_coords"] = coords[how]
    whole = http(json.dumps(answer).encode())
    if how == "streams":
        return whole.replace(b"application/json", b"text/event-stream; charset=utf-8")
    if how == "is busy":
        return whole.replace(b"200 OK", b"503 Busy")
    return whole[:-5] if how == "breaks off" else whole


REASONS = {
    "missing": "worker_response_missing_commit_coordinates",
    "failed": "worker_capture_failed",
    "of another call": "invalid_worker_commit_coordinates",
    "staged without digest": "invalid_worker_commit_coordinates",
    "no object": "invalid_worker_commit_coordinates",
}
NO_ANSWER = {
    "cannot be said": ("conversion_failed", 502),
    "streams": ("worker_streamed", 502),
    "is busy": ("worker_error", 503),
    "breaks off": ("upstream_unreachable", 502),
}


@pytest.mark.parametrize("capture", [True, False])
async def test_every_failure_is_recorded_with_its_reason_with_capture_on_and_off(tmp_path: Path, capture: bool) -> None:
    async def play(connection: Connection) -> None:
        await connection.request()
        await connection.say(misbehaving(json.loads(connection.bodies[-1])))

    async def ask(port: int, how: str, stream: bool) -> bytes:
        path = STAGED_BY.format(f"{how}-{stream}".replace(" ", "-")) + PATHS["responses"]
        asked = {"model": "m", "stream": stream, "input": [{"role": "user", "content": how}]}
        return await asyncio.to_thread(exchange, port, [asking(path, asked)])

    log = StagingLog(tmp_path / "log")
    async with playing(play) as upstream:
        with gateway(tmp_path, int(upstream.url.rpartition(":")[2]), capture) as port:
            for stream in (True, False):
                for how, reason in REASONS.items():
                    got = await ask(port, how, stream)
                    assert (True, True) == (got.startswith(b"HTTP/1.1 200"), b'"hi"' in got), how
                    assert b"response.completed" in got if stream else b'"status":"completed"' in got
                    assert [reason] == [line["reason"] for line in log.read(f"{how}-{stream}".replace(" ", "-"))]
                for how, (reason, status) in NO_ANSWER.items():
                    got = await ask(port, how, stream)
                    terminal = stream and how == "cannot be said"
                    assert (b"200" if terminal else str(status).encode()) == got[9:12], how
                    assert terminal == (b"event: response.failed" in got)
                    assert [reason] == [line["reason"] for line in log.read(f"{how}-{stream}".replace(" ", "-"))]
    records = [CaptureStore(tmp_path / "captures").read(f"{how}-True".replace(" ", "-")) for how in REASONS | NO_ANSWER]
    assert [int(capture)] * (len(REASONS) + len(NO_ANSWER)) == [len(found) for found in records]


@pytest.mark.parametrize("dialect", PATHS)
async def test_a_stalling_sink_is_waited_for_with_signs_of_life(tmp_path: Path, served: Trained, dialect: str) -> None:
    log, rollout_id = StagingLog(tmp_path / "log"), f"stalling-{dialect}"
    upstreams = Upstreams([Upstream(f"http://127.0.0.1:{served.worker}")], "upstream")
    app = Gateway(make_client(), upstreams, Settings(observability_enabled=False), staging=Staging(log, 0.05))
    asked = {"model": "m", "max_tokens": 9, "stream": True}
    asked["input" if dialect == "responses" else "messages"] = [{"role": "user", "content": "hi"}]
    served.tell(stall_s=0.4)
    try:
        path = STAGED_BY.format(rollout_id) + PATHS[dialect]
        async with Exchange(app, path, json.dumps(asked).encode()) as client:
            await client.rest()
    finally:
        served.tell()
        await app.aclose()
    assert client.body.startswith(KEEP_ALIVE * 2)
    assert b"I have" in json.dumps(dump(streamed(dialect, [client.body]))).encode()
    assert ["staged"] == [line["disposition"] for line in log.read(rollout_id)]


def test_a_worker_that_streams_to_its_clients_would_have_no_tokens_and_refuses(served: Trained) -> None:
    url = f"http://127.0.0.1:{served.worker}/v1/chat/completions"
    asked = {"model": "m", "stream": True, "messages": [], "ng_capture": {}}
    assert 400 == httpx.post(url, json=asked).status_code


async def test_a_killed_worker_costs_its_call_and_the_chain_goes_on_with_the_next_one(
    tmp_path: Path, clients: Clients
) -> None:
    port, variables = free_port(), {"STAGING_DIRECTORY": str(tmp_path / "staged")}
    files = StagingLog(tmp_path / "log"), StagedCalls(tmp_path / "staged"), CaptureStore(tmp_path / "captures")
    with gateway(tmp_path, port) as listens:
        served = Trained(listens, port, *files, tmp_path / "worker.log")
        conversation = clients.conversation("messages", served.url("killed"))
        with running(worker_command(str(port)), tmp_path / "worker.log", variables) as child:
            await asyncio.to_thread(until_it_listens, port)
            await conversation.say("one", stream=True)
            served.tell(kill=True)
            with pytest.raises(InternalServerError):
                await conversation.say("two", stream=False)
            assert 137 == await asyncio.to_thread(child.wait, 20)
        assert ["upstream_unreachable"] == served.failures("killed")
        conversation.history.pop()
        with running(worker_command(str(port)), tmp_path / "worker.log", variables):
            await asyncio.to_thread(until_it_listens, port)
            assert read("two") == conversation.text(await conversation.say("two", stream=True))
        assert 2 == len(verify_all(served.chain("killed")))
