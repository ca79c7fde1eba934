"""Whole agent loops of the real SDKs in Phoenix, with content on: messages, tool calls, tokens and model are shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from examples import agent_anthropic, agent_chat, agent_openai
from examples.population import QUESTION, population
from examples.scripted_model.script import SCRIPT
from tests.services.captured import captured_server, destination, span_id
from tests.services.phoenix import Phoenix

pytestmark = [pytest.mark.servers, pytest.mark.backends]

ANSWER = SCRIPT[2].text
AGENTS: dict[str, Callable[[str], Coroutine[Any, Any, str]]] = {
    "responses": lambda url: agent_openai.run(f"{url}/v1"),
    "chat": lambda url: agent_chat.run(f"{url}/v1"),
    "messages": lambda url: agent_anthropic.run(url),
}


def messages_of(shown: dict[str, Any], side: str) -> list[dict[str, Any]]:
    """What the page shows as messages: Phoenix makes its own attributes of those of the conventions."""
    return [item["message"] for item in shown["attributes"]["llm"][f"{side}_messages"]]


def test_messages_tools_tokens_and_model_of_each_dialect_are_shown(phoenix: Phoenix, tmp_path: Path) -> None:
    """The agent asks the model three times: it wants one tool call, then another, then answers."""
    variables = {
        "OTEL_GYM_MIRROR_DESTINATIONS": destination({"endpoint": phoenix.url, "profile": "phoenix", "content": True}),
        "OTEL_RESOURCE_ATTRIBUTES": "openinference.project.name=rollouts",
    }
    with captured_server(tmp_path, "examples.model_server:app", **variables) as server:
        for dialect, agent in AGENTS.items():
            assert ANSWER == asyncio.run(agent(server.url(dialect)))
        for dialect in AGENTS:
            records = server.store.read(dialect)
            shown = [phoenix.wait_for(span_id(record)) for record in records]
            trace = {server.trace_id(dialect)}
            assert (3, trace) == (len(records), {span["context"]["traceId"] for span in shown})
            for span, record in zip(shown, records, strict=True):
                shows_the_call(span, record)
            shows_the_conversation(shown)


def shows_the_call(shown: dict[str, Any], record: dict[str, Any]) -> None:
    """Kind, model and tokens."""
    usage = record["response"]["usage"]
    tokens_in = usage.get("prompt_tokens", usage.get("input_tokens"))
    tokens_in += usage.get("cache_read_input_tokens", 0)
    tokens_out = usage.get("completion_tokens", usage.get("output_tokens"))
    assert ("chat scripted-1", "llm", "rollouts") == (shown["name"], shown["spanKind"], shown["project"]["name"])
    assert (tokens_in, tokens_out) == (shown["tokenCountPrompt"], shown["tokenCountCompletion"])
    assert "scripted-1" == shown["attributes"]["llm"]["model_name"]


def shows_the_conversation(shown: list[dict[str, Any]]) -> None:
    """What went to the model, what it said, and the tools that it had."""
    answers = [answer for span in shown for answer in messages_of(span, "output")]
    assert ["assistant"] * 3 == [answer["role"] for answer in answers]
    calls = [[call["tool_call"]["function"] for call in answer.get("tool_calls", [])] for answer in answers]
    cities = [[(call["name"], json.loads(call["arguments"])["city"]) for call in group] for group in calls]
    assert [[("population", "Oslo")], [("population", "Bergen")], []] == cities
    texts = [part["message_content"] for answer in answers for part in answer.get("contents", [])]
    assert [turn.thinking for turn in SCRIPT] == [text["text"] for text in texts if text["type"] == "reasoning"]
    assert ANSWER in str(answers[2])
    asked = messages_of(shown[2], "input")
    # Who says the results of tools is the dialect's business: Anthropic's API has no role for them.
    said = [message["content"] for message in asked if message["role"] in ("user", "tool")]
    assert [QUESTION, *map(population, ("Oslo", "Bergen"))] == said
    (tool,) = shown[0]["attributes"]["llm"]["tools"]
    assert "population" == json.loads(tool["tool"]["json_schema"])["function"]["name"]
