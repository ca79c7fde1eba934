"""Collections of an agent's server in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from otel_gym.collect import Collection, Plan, Tally
from otel_gym.collect.answers import HELD_BYTES
from otel_gym.collect.claims import Claim
from otel_gym.collect.directory_lock import DirectoryLock
from otel_gym.collect.errors import BusyError, NotEmptyError
from otel_gym.collect.row_file import RowFile
from tests.collect.conftest import AgentServer, Write, pairs_of, rows_of
from tests.ports import free_port
from tests.sample_records import capture, record
from tests.servers.processes import wait_until

pytestmark = pytest.mark.servers


async def collect(plan: Plan, **changed: Any) -> Tally:
    return await Collection(dataclasses.replace(plan, **changed)).run()


@pytest.fixture
def plan(agent: AgentServer, tasks: Write, tmp_path: Path) -> Plan:
    return Plan(agent.url, tasks(*({"say": n} for n in range(20))), tmp_path / "rollouts.jsonl", retries=0)


async def test_each_task_has_its_rows_and_each_is_the_agents_result(plan: Plan, agent: AgentServer) -> None:
    tally = await collect(plan, repeats=3, concurrency=7)
    assert (True, 60, 60) == (tally.complete, tally.wanted, tally.done)
    assert [(task, rollout) for task in range(20) for rollout in range(3)] == pairs_of(plan.output)
    assert all(str(row["_ng_task_index"]) == row["said"] for row in rows_of(plan.output))
    assert 60 == len(agent.posted())
    assert all(line.startswith('{"reward": 1.50, ') for line in plan.output.read_text().splitlines())


async def test_rows_come_in_the_order_in_which_they_end(plan: Plan, tasks: Write) -> None:
    slow_first = tasks({"do": {"sleep": 1.0}}, {}, {"do": {"sleep": 0.4}})
    await collect(plan, input=slow_first)
    assert [1, 2, 0] == [row["_ng_task_index"] for row in rows_of(plan.output)]


async def test_failures_become_rows_and_stop_nobody(plan: Plan, tasks: Write) -> None:
    bad = [{"status": 500}, {"status": 404}, {"text": "[1]"}, {"text": '{"reward": '}, {"cut": 1}, {"sleep": 60}]
    rows = tasks(*({"do": do} for do in bad), "{broken", {}, {})
    tally = await collect(plan, input=rows, timeout_s=2.0)
    assert (2, 7, 0, False) == (tally.done, tally.failed.total(), tally.missing, tally.complete)
    found = {row.get("_ng_task_index"): row for row in rows_of(plan.output)}
    expected = ["http_status", "http_status", "malformed", "malformed", "connection", "timeout"]
    assert expected == [found[task]["ng_error"]["code"] for task in range(6)]
    assert [500, 404] == [found[task]["ng_error"]["status"] for task in range(2)]
    assert "not now" in found[0]["ng_error"]["message"]
    assert (6, "input_invalid") == (found[None]["ng_error"]["line"], found[None]["ng_error"]["code"])
    assert [] == [row for row in found.values() if "ng_error" in row and "reward" in row]


async def test_what_may_pass_is_tried_again_under_an_attempt_of_its_own(
    plan: Plan, tasks: Write, agent: AgentServer
) -> None:
    rows = tasks({"do": {"status": 503, "times": 2}}, {"do": {"status": 404, "times": 2}})
    tally = await collect(plan, input=rows, retries=2)
    assert (1, {"http_status": 1}, 2) == (tally.done, dict(tally.failed), tally.retried)
    assert [None, 1, 2] == [row.get("_ng_attempt_index") for row in agent.posted() if row["_ng_task_index"] == 0]
    assert [2] == [row["_ng_attempt_index"] for row in rows_of(plan.output) if "reward" in row]


async def test_an_agent_that_cannot_be_reached_is_tried_under_the_same_attempt(plan: Plan, tasks: Write) -> None:
    tally = await collect(plan, agent="http://127.0.0.1:9", input=tasks({}), retries=1)
    assert ({"connection": 1}, 1) == (dict(tally.failed), tally.retried)
    [row] = rows_of(plan.output)
    assert "_ng_attempt_index" not in row
    assert "http://127.0.0.1:9/run cannot be reached" in row["ng_error"]["message"]
    assert 2 == row["ng_error"]["tries"]


async def test_an_agent_that_refuses_then_resets_then_answers_has_its_row(plan: Plan, tasks: Write) -> None:
    """What was refused keeps its attempt, what was reset may have begun: its next try is another one."""
    posted: list[dict[str, Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        posted.append(json.loads(await reader.readexactly(length)))
        if len(posted) == 1:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return
        answer = b'{"reward": 1}'
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(answer), answer))
        await writer.drain()
        writer.close()

    port = free_port()
    agent = f"http://127.0.0.1:{port}"
    collection = Collection(dataclasses.replace(plan, agent=agent, input=tasks({}), retries=20))
    collecting = asyncio.create_task(collection.run())
    await asyncio.to_thread(wait_until, lambda: collection.tally.retried > 0)
    async with await asyncio.start_server(serve, "127.0.0.1", port):
        tally = await collecting
    assert (1, True) == (tally.done, tally.retried >= 2)
    assert [None, 1] == [row.get("_ng_attempt_index") for row in posted]
    assert [1] == [row["_ng_attempt_index"] for row in rows_of(plan.output)]


async def test_a_result_beyond_the_limit_is_not_read_to_its_end(plan: Plan, tasks: Write) -> None:
    rows = tasks({"do": {"bytes": 1 << 30}}, {})
    tally = await collect(plan, input=rows, max_result_bytes=1_000_000)
    assert (1, {"too_large": 1}) == (tally.done, dict(tally.failed))


async def test_a_long_result_is_kept_whole_though_not_in_memory(plan: Plan, tasks: Write) -> None:
    mib = 1 << 20
    text = '{"reward": 1.50, "tokens": "' + "x" * (3 * HELD_BYTES) + '"}'
    rows = tasks({"do": {"bytes": 30 * mib, "text": text}}, *({"do": {"bytes": HELD_BYTES}} for _ in range(8)), {})
    tally = await collect(plan, input=rows)
    assert (10, {}) == (tally.done, dict(tally.failed))
    lines = {json.loads(line)["_ng_task_index"]: line for line in plan.output.read_text().splitlines()}
    assert lines[0].startswith(text[:-1] + ",")


async def test_a_resumed_collection_runs_what_has_no_result_as_a_new_attempt(
    plan: Plan, tasks: Write, agent: AgentServer
) -> None:
    rows = tasks({}, {"do": {"status": 500, "times": 1}}, {}, {"do": {"status": 500, "times": 2}}, "{broken")
    await collect(plan, input=rows, limit=4)
    assert 4 == len(agent.posted())
    tally = await collect(plan, input=rows, resume=True)
    assert (2, 1, 2, 0) == (tally.earlier, tally.done, tally.failed.total(), tally.missing)
    assert [(1, 1), (3, 1)] == sorted((r["_ng_task_index"], r["_ng_attempt_index"]) for r in agent.posted()[4:])
    tally = await collect(plan, input=rows, resume=True)
    assert (3, 1, 1) == (tally.earlier, tally.done, tally.failed.total())
    assert [(3, 2)] == [(row["_ng_task_index"], row["_ng_attempt_index"]) for row in agent.posted()[6:]]
    found = rows_of(plan.output)
    results = {r["_ng_task_index"]: r.get("_ng_attempt_index", 0) for r in found if "ng_error" not in r}
    assert {0: 0, 1: 1, 2: 0, 3: 2} == results
    assert [4] == [row["ng_error"]["line"] for row in found if "ng_error" in row]


async def test_a_resumed_collection_mends_a_torn_line_and_loses_no_row(plan: Plan, agent: AgentServer) -> None:
    await collect(plan)
    whole = plan.output.read_bytes()
    plan.output.write_bytes(whole[:-9])
    tally = await collect(plan, resume=True)
    assert (True, True, 19, 1) == (tally.torn, tally.complete, tally.earlier, tally.done)
    assert plan.output.read_bytes().startswith(b"".join(whole.splitlines(keepends=True)[:-1]))
    assert [(task, 0) for task in range(20)] == pairs_of(plan.output)


async def test_rows_that_stand_are_never_written_over(plan: Plan, agent: AgentServer) -> None:
    await collect(plan, limit=1)
    before = plan.output.read_bytes()
    with pytest.raises(NotEmptyError, match="say --resume"):
        await collect(plan)
    assert (before, 1) == (plan.output.read_bytes(), len(agent.posted()))


async def test_exactly_the_attempts_that_run_are_cleared_and_attached(plan: Plan, tasks: Write, tmp_path: Path) -> None:
    directory = tmp_path / "calls"
    directory.mkdir()
    for rollout_id in ("0-0", "0-0-a1", "1-0", "7-0"):
        capture(directory, rollout_id, record())
    (directory / "0-0.capture.incomplete").touch()
    tally = await collect(plan, input=tasks({}), capture_dirs=[directory])
    assert {"0-0-a1.capture.jsonl", "1-0.capture.jsonl", "7-0.capture.jsonl", ".otel-gym-collect.lock"} == {
        path.name for path in directory.iterdir()
    }
    [row] = rows_of(plan.output)
    assert [{"code": "model_call_capture_no_records"}] == row["ng_model_call_capture"]["gaps"]
    assert {"model_call_capture_no_records": 1} == dict(tally.gaps)


async def test_two_collections_do_not_share_a_rollout(plan: Plan, tmp_path: Path, agent: AgentServer) -> None:
    directory, claim = tmp_path / "calls", Claim()
    directory.mkdir()
    capture(directory, "3-0", record())
    claim.add_pair((3, 0))
    with contextlib.closing(RowFile(tmp_path / "other.jsonl")) as other:
        lock = DirectoryLock(directory, other.path, claim)
        with pytest.raises(BusyError, match="runs rollout 3-0 on this"):
            await collect(plan, capture_dirs=[directory])
        assert [] == agent.posted()
        assert (directory / "3-0.capture.jsonl").exists(), "nothing is cleared"
        assert (await collect(plan, capture_dirs=[directory], limit=3)).done == 3
        lock.release()
    assert (await collect(plan, capture_dirs=[directory], resume=True)).done == 17


async def test_a_disk_that_fails_ends_the_collection_with_its_error(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    from otel_gym.collect.row_file import RowFile

    def full(self: RowFile, lines: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RowFile, "append", full)
    with pytest.raises(OSError, match="No space left"):
        await collect(plan)
    assert b"" == plan.output.read_bytes()


async def test_an_input_that_cannot_be_read_any_more_is_an_error(plan: Plan) -> None:
    with pytest.raises(FileNotFoundError):
        await collect(plan, input=plan.input.with_name("gone.jsonl"))


async def test_a_row_is_posted_as_it_stands(plan: Plan, tasks: Write, agent: AgentServer) -> None:
    await collect(plan, input=tasks('{"id": 12345678901234567890123, "_ng_rollout_id": "mine"}'))
    assert [
        {"id": 12345678901234567890123, "_ng_rollout_id": "mine", "_ng_task_index": 0, "_ng_rollout_index": 0}
    ] == agent.posted()
    assert "mine" == json.loads(plan.output.read_text())["_ng_rollout_id"]
