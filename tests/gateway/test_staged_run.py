"""A training run through gateway and worker as processes: many rollouts at once, a sink that fails, stalls and dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from otel_gym.gateway import StagingLog
from otel_gym.staging import CallRecord, StagedCalls
from otel_gym_jsonl import CaptureStore
from tests.servers.processes import listening

pytestmark = [pytest.mark.servers, pytest.mark.slow]

ROLLOUTS, CALLS, AT_ONCE, FAIL_EVERY = 100, 10, 32, 20
DIALECTS = ("chat", "responses", "messages")


class Run:
    """A gateway and a worker, and what they leave.

    Attributes:
        url: of the gateway.
        worker: URL of the worker.
    """

    def __init__(self, gateway: int, worker: int, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{gateway}"
        self.worker = f"http://127.0.0.1:{worker}"
        self.log = StagingLog(folder / "log")
        self.staged = StagedCalls(folder / "staged")
        self.store = CaptureStore(folder / "captures")

    def base(self, rollout_id: str) -> str:
        return f"{self.url}/ng-rollout/{rollout_id}/training-token-capture"

    def tell_sink(self, **orders: Any) -> None:
        httpx.post(f"{self.worker}/sink", json=orders).raise_for_status()


@contextlib.contextmanager
def training(folder: Path) -> Iterator[Run]:
    worker = ["uvicorn", "examples.staging_worker:app", "--port", "{port}", "--log-level", "error"]
    with listening(worker, folder / "worker.log", {"STAGING_DIRECTORY": str(folder / "staged")}) as behind:
        gateway = ["otel_gym", "gateway", "--port", "{port}", "--upstream", f"http://127.0.0.1:{behind}/v1"]
        gateway += ["--staging-log", str(folder / "log"), "--capture-dir", str(folder / "captures")]
        with listening(gateway, folder / "gateway.log", {}) as port:
            yield Run(port, behind, folder)


class Agent:
    """A conversation of one rollout, in one dialect, every second call streamed."""

    def __init__(self, run: Run, number: int) -> None:
        self.rollout_id = f"r-{number}"
        self.dialect = DIALECTS[number % 3]
        base = run.base(self.rollout_id)
        own: dict[str, Any] = {"api_key": "none", "max_retries": 0, "timeout": 120.0}
        self.openai = AsyncOpenAI(base_url=f"{base}/v1", **own)
        self.anthropic = AsyncAnthropic(base_url=base, **own)
        self.history: list[Any] = []

    async def converse(self) -> list[str]:
        """All calls; what each answered."""
        said = []
        async with self.openai, self.anthropic:
            for number in range(CALLS):
                self.history.append({"role": "user", "content": f"{self.rollout_id}, turn {number}"})
                said.append(await getattr(self, self.dialect)(stream=bool(number % 2)))
        return said

    async def chat(self, stream: bool) -> str:
        asked: Any = {"model": "m", "messages": self.history}
        if stream:
            async with self.openai.chat.completions.stream(**asked) as events:
                answer = await events.get_final_completion()
        else:
            answer = await self.openai.chat.completions.create(**asked)
        message = answer.choices[0].message
        self.history.append({"role": "assistant", "content": message.content})
        return str(message.content)

    async def responses(self, stream: bool) -> str:
        asked: Any = {"model": "m", "input": self.history}
        if stream:
            async with self.openai.responses.stream(**asked) as events:
                answer = await events.get_final_response()
        else:
            answer = await self.openai.responses.create(**asked)
        self.history += [item.to_dict(exclude_none=True) for item in answer.output]
        return str(answer.output_text)

    async def messages(self, stream: bool) -> str:
        asked: Any = {"model": "m", "messages": self.history, "max_tokens": 99}
        if stream:
            async with self.anthropic.messages.stream(**asked) as events:
                answer = await events.get_final_message()
        else:
            answer = await self.anthropic.messages.create(**asked)
        self.history.append({"role": "assistant", "content": [block.to_dict() for block in answer.content]})
        return "".join(block.text for block in answer.content if block.type == "text")


async def test_a_run_with_failing_sinks_loses_no_answer_and_every_chain_agrees(tmp_path: Path) -> None:
    with training(tmp_path) as run:
        run.tell_sink(fail_every=FAIL_EVERY)
        places = asyncio.Semaphore(AT_ONCE)

        async def rollout(number: int) -> list[str]:
            async with places:
                return await Agent(run, number).converse()

        answers = await asyncio.gather(*(rollout(number) for number in range(ROLLOUTS)))
        lines = {f"r-{number}": run.log.read(f"r-{number}") for number in range(ROLLOUTS)}
        records = [record for rollout_id in lines for record in run.store.read(rollout_id)]

    for number, said in enumerate(answers):
        assert [True] * CALLS == [f"r-{number}, turn {turn}" in text for turn, text in enumerate(said)]
    assert [CALLS] * ROLLOUTS == [len(found) for found in lines.values()]
    failed = [line for found in lines.values() for line in found if line["disposition"] == "failed"]
    assert Counter(worker_capture_failed=ROLLOUTS * CALLS // FAIL_EVERY) == Counter(line["reason"] for line in failed)

    total = 0
    for rollout_id, found in lines.items():
        rows = {line["call"]["model_call_id"]: CallRecord(**line["call"]) for line in found if "call" in line}
        parents = {row.parent_call_id for row in rows.values()}
        # A conversation that was never left by a failed root is one chain: each staged call continues the one before.
        leaves = [row for row in rows.values() if row.model_call_id not in parents]
        assert 1 == len(leaves)
        keys, at = [], leaves[0]
        while True:
            keys.append(at.staging_key)
            if at.parent_call_id is None:
                break
            at = rows[at.parent_call_id]
        assert len(rows) == len(keys)
        assert leaves[0].cum_len == len(run.staged.token_ids(keys[::-1]))
        assert sorted(keys) == run.staged.staging_keys(rollout_id)
        total += len(keys)
    assert ROLLOUTS * CALLS - len(failed) == total

    assert ROLLOUTS * CALLS == len(records)
    assert {(200, None)} == {(record["status_code"], record["error_category"]) for record in records}
    text = json.dumps([(record["request"], record["response"], record.get("response_raw")) for record in records])
    names = ("token_id:", "prompt_token_ids", "generation_", "ng_commit_coords", "ng_capture", "token_ids")
    assert [] == [name for name in names if name in text]


async def test_a_sink_that_stalls_and_a_worker_that_dies_are_heard_of(tmp_path: Path) -> None:
    with training(tmp_path) as run:
        asked: Any = {"model": "m", "input": "hi"}
        async with AsyncOpenAI(base_url=f"{run.base('r-0')}/v1", api_key="none", max_retries=0) as client:
            run.tell_sink(stall_s=1.0)
            async with client.responses.stream(**asked) as events:
                assert "I have read" in (await events.get_final_response()).output_text
            run.tell_sink(kill=True)
            with pytest.raises(Exception, match="got no answer"):
                async with client.responses.stream(**asked) as events:
                    await events.get_final_response()
        lines = [(line["disposition"], line.get("reason")) for line in run.log.read("r-0")]
        assert [("staged", None), ("failed", "upstream_unreachable")] == lines
        assert 1 == len(run.staged.staging_keys("r-0"))
