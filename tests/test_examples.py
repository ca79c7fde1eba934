"""Each example runs, and the real SDKs take what the example server says."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from demo.server import serving
from examples import agent_anthropic, agent_chat, agent_openai
from examples.population import CHAT_TOOL, MESSAGES_TOOL, QUESTION, RESPONSES_TOOL
from examples.scripted_model import chat, messages, responses
from otel_gym.rollouts import attach

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
ANSWER = "Oslo has more people than Bergen: 717,710 against 291,940."
ASKED = [{"role": "user", "content": QUESTION}]
SDK: dict[str, Any] = {"api_key": "none", "max_retries": 0}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The example server, captured."""
    directory = tmp_path_factory.mktemp("examples")
    with serving(directory / "server.log", {"OTEL_GYM_MODEL_CALL_CAPTURE_DIR": str(directory / "calls")}) as url:
        yield url


@pytest.mark.servers
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_example_has_at_most_40_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 40


@pytest.mark.parametrize(("agent", "api"), [("agent_openai", "/v1"), ("agent_chat", "/v1"), ("agent_anthropic", "")])
def test_an_agent_runs_from_the_command_line_and_gets_its_answer(url: str, agent: str, api: str) -> None:
    command = [sys.executable, "-m", f"examples.{agent}", f"{url}/ng-rollout/{agent}{api}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (f"{ANSWER}\n", "", 0) == (done.stdout, done.stderr, done.returncode)


AGENTS: dict[str, Callable[[str], Any]] = {
    "responses, plain": lambda url: agent_openai.run(f"{url}/v1", stream=False),
    "responses, streaming": lambda url: agent_openai.run(f"{url}/v1", stream=True),
    "chat, streaming": lambda url: agent_chat.run(f"{url}/v1"),
    "messages, plain": lambda url: agent_anthropic.run(url, stream=False),
    "messages, streaming": lambda url: agent_anthropic.run(url, stream=True),
}


@pytest.mark.servers
@pytest.mark.parametrize("agent", AGENTS)
async def test_an_agent_loop_calls_both_tools_and_ends_with_the_answer(url: str, agent: str) -> None:
    assert ANSWER == await AGENTS[agent](f"{url}/ng-rollout/loop")


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A capture directory that a model server named `policy` writes to, and what an agent's environment says of it."""
    directory = tmp_path_factory.mktemp("agents")
    calls = {"OTEL_GYM_MODEL_CALL_CAPTURE_DIR": str(directory / "calls")}
    with serving(directory / "model.log", {**calls, "OTEL_GYM_MODEL_SERVER_NAME": "policy"}) as url:
        yield directory / "calls", {**calls, "OTEL_GYM_MODEL_SERVERS": json.dumps({"policy": url})}


async def collect(agent: str, log: Path, environment: dict[str, str], rows: list[dict[str, Any]]) -> list[Any]:
    """Every row posted to the agent, all at once."""
    with serving(log, environment, f"examples.{agent}:app") as url:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            answers = await asyncio.gather(*(client.post("/run", json=row) for row in rows))
    return [answer.raise_for_status().json() for answer in answers]


@pytest.mark.servers
async def test_one_client_of_an_agents_server_serves_many_rollouts_at_once(
    captured: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    directory, environment = captured
    rows = [{"_ng_task_index": task, "_ng_rollout_index": 0} for task in range(12)]
    results = await collect("agent_server", tmp_path / "agent.log", environment, rows)
    assert [1.0] * 12 == [result["reward"] for result in results]
    for row, result in zip(rows, results, strict=True):
        attached = attach(row, result, [directory])
        assert "gaps" not in attached["ng_model_call_capture"]
        assert [f"resp_{number}" for number in range(3)] == [
            call["response_id"] for call in attached["ng_model_call_capture"]["calls"]
        ]


@pytest.mark.servers
async def test_what_a_team_says_of_itself_finds_its_captured_calls(
    captured: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    directory, environment = captured
    rows = [{"_ng_task_index": task, "_ng_rollout_index": 0} for task in range(100, 104)]
    results = await collect("agent_team", tmp_path / "team.log", environment, rows)
    for row, result in zip(rows, results, strict=True):
        attached = attach(row, result, [directory], rollout_latency_ms=1.0)
        trajectory, perf = attached["ng_trajectory"], attached["ng_perf"]
        turns = [(turn["invocation_id"], turn["turn_no"]) for turn in trajectory["turns"]]
        assert [(name, number) for name in ("first", "second") for number in (1, 2, 3)] == sorted(turns)
        assert {"lead": None, "first": "lead", "second": "lead"} == {
            each["invocation_id"]: each["parent_invocation_id"] for each in trajectory["invocations"]
        }
        assert ["291940", "291940", "717710", "717710"] == sorted(tool["output"] for tool in trajectory["tool_calls"])
        assert ([], 1.0) == (trajectory["gaps"], result["reward"])
        assert (7, 4) == (perf["num_turns"], perf["num_tool_calls"])


RESPONSES: dict[str, Any] = {"model": "scripted-1", "input": ASKED, "tools": [RESPONSES_TOOL]}
CHAT: dict[str, Any] = {"model": "scripted-1", "messages": ASKED, "tools": [CHAT_TOOL]}
MESSAGES: dict[str, Any] = {"model": "scripted-1", "messages": ASKED, "tools": [MESSAGES_TOOL], "max_tokens": 1024}
USAGE: Any = {"include_usage": True}


def whole_answers() -> list[dict[str, Any]]:
    return [responses.answer(RESPONSES), chat.answer(CHAT), messages.answer(MESSAGES)]


@pytest.mark.servers
def test_the_sync_sdks_take_plain_answers_whole(url: str) -> None:
    base = f"{url}/ng-rollout/sync-plain"
    with OpenAI(base_url=f"{base}/v1", **SDK) as openai, Anthropic(base_url=base, **SDK) as anthropic:
        answers: list[Any] = [
            openai.responses.create(**RESPONSES),
            openai.chat.completions.create(**CHAT),
            anthropic.messages.create(**MESSAGES),
        ]
    assert whole_answers() == [answer.to_dict() for answer in answers]


@pytest.mark.servers
async def test_the_async_sdks_take_plain_answers_whole(url: str) -> None:
    base = f"{url}/ng-rollout/async-plain"
    async with AsyncOpenAI(base_url=f"{base}/v1", **SDK) as openai, AsyncAnthropic(base_url=base, **SDK) as anthropic:
        answers = await asyncio.gather(
            openai.responses.create(**RESPONSES),
            openai.chat.completions.create(**CHAT),
            anthropic.messages.create(**MESSAGES),
        )
    assert whole_answers() == [answer.to_dict() for answer in answers]


def substance(answers: Any) -> Any:
    """Answers less what the SDKs' streaming helpers add: nulls, numbers of tool calls, readings of JSON texts."""
    if isinstance(answers, dict):
        kept = {k: v for k, v in answers.items() if v is not None and k not in ("index", "parsed", "parsed_arguments")}
        return {k: substance(v) for k, v in kept.items()}
    return [substance(answer) for answer in answers] if isinstance(answers, list) else answers


@pytest.mark.servers
def test_the_sync_sdks_rebuild_the_plain_answers_from_the_streams(url: str) -> None:
    base = f"{url}/ng-rollout/sync-stream"
    with (
        OpenAI(base_url=f"{base}/v1", **SDK) as openai,
        Anthropic(base_url=base, **SDK) as anthropic,
        openai.responses.stream(**RESPONSES) as response,
        openai.chat.completions.stream(**CHAT, stream_options=USAGE) as completion,
        anthropic.messages.stream(**MESSAGES) as message,
    ):
        answers: list[Any] = [
            response.get_final_response(),
            completion.get_final_completion(),
            message.get_final_message(),
        ]
    assert substance(whole_answers()) == substance([answer.to_dict() for answer in answers])


@pytest.mark.servers
async def test_the_async_sdks_rebuild_the_plain_answers_from_the_streams(url: str) -> None:
    base = f"{url}/ng-rollout/async-stream"
    async with (
        AsyncOpenAI(base_url=f"{base}/v1", **SDK) as openai,
        AsyncAnthropic(base_url=base, **SDK) as anthropic,
        openai.responses.stream(**RESPONSES) as response,
        openai.chat.completions.stream(**CHAT, stream_options=USAGE) as completion,
        anthropic.messages.stream(**MESSAGES) as message,
    ):
        answers = await asyncio.gather(
            response.get_final_response(), completion.get_final_completion(), message.get_final_message()
        )
    assert substance(whole_answers()) == substance([answer.to_dict() for answer in answers])
