"""The real SDKs against the example model server, which its environment alone captures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from examples.population import CHAT_TOOL, MESSAGES_TOOL, QUESTION, RESPONSES_TOOL
from otel_gym_jsonl import read_model_call_records
from tests.servers.processes import Served

pytestmark = pytest.mark.servers

ASKED = [{"role": "user", "content": QUESTION}]
SDK: dict[str, Any] = {"api_key": "none", "max_retries": 0}
RESPONSES: dict[str, Any] = {"model": "scripted-1", "input": ASKED, "tools": [RESPONSES_TOOL]}
CHAT: dict[str, Any] = {"model": "scripted-1", "messages": ASKED, "tools": [CHAT_TOOL]}
MESSAGES: dict[str, Any] = {"model": "scripted-1", "messages": ASKED, "tools": [MESSAGES_TOOL], "max_tokens": 1024}
USAGE: Any = {"include_usage": True}

Seen = Callable[[], None]
"""Called when the client has seen the end of an answer."""

# ---- one call, in each way that the SDKs have


def responses_plain(url: str, seen: Seen) -> Any:
    with OpenAI(base_url=f"{url}/v1", **SDK) as client:
        answer = client.responses.create(**RESPONSES)
    seen()
    return answer


async def responses_plain_async(url: str, seen: Seen) -> Any:
    async with AsyncOpenAI(base_url=f"{url}/v1", **SDK) as client:
        answer = await client.responses.create(**RESPONSES)
    seen()
    return answer


def responses_stream(url: str, seen: Seen) -> Any:
    with OpenAI(base_url=f"{url}/v1", **SDK) as client, client.responses.stream(**RESPONSES) as stream:
        for event in stream:
            if event.type == "response.completed":
                seen()
        return stream.get_final_response()


async def responses_stream_async(url: str, seen: Seen) -> Any:
    async with AsyncOpenAI(base_url=f"{url}/v1", **SDK) as client, client.responses.stream(**RESPONSES) as stream:
        async for event in stream:
            if event.type == "response.completed":
                seen()
        return await stream.get_final_response()


def chat_plain(url: str, seen: Seen) -> Any:
    with OpenAI(base_url=f"{url}/v1", **SDK) as client:
        answer = client.chat.completions.create(**CHAT)
    seen()
    return answer


async def chat_plain_async(url: str, seen: Seen) -> Any:
    async with AsyncOpenAI(base_url=f"{url}/v1", **SDK) as client:
        answer = await client.chat.completions.create(**CHAT)
    seen()
    return answer


def chat_stream(url: str, seen: Seen) -> Any:
    with (
        OpenAI(base_url=f"{url}/v1", **SDK) as client,
        client.chat.completions.stream(**CHAT, stream_options=USAGE) as stream,
    ):
        stream.until_done()
        seen()
        return stream.get_final_completion()


async def chat_stream_async(url: str, seen: Seen) -> Any:
    async with (
        AsyncOpenAI(base_url=f"{url}/v1", **SDK) as client,
        client.chat.completions.stream(**CHAT, stream_options=USAGE) as stream,
    ):
        await stream.until_done()
        seen()
        return await stream.get_final_completion()


def messages_plain(url: str, seen: Seen) -> Any:
    with Anthropic(base_url=url, **SDK) as client:
        answer = client.messages.create(**MESSAGES)
    seen()
    return answer


async def messages_plain_async(url: str, seen: Seen) -> Any:
    async with AsyncAnthropic(base_url=url, **SDK) as client:
        answer = await client.messages.create(**MESSAGES)
    seen()
    return answer


def messages_stream(url: str, seen: Seen) -> Any:
    with Anthropic(base_url=url, **SDK) as client, client.messages.stream(**MESSAGES) as stream:
        for event in stream:
            if event.type == "message_stop":
                seen()
        return stream.get_final_message()


async def messages_stream_async(url: str, seen: Seen) -> Any:
    async with AsyncAnthropic(base_url=url, **SDK) as client, client.messages.stream(**MESSAGES) as stream:
        async for event in stream:
            if event.type == "message_stop":
                seen()
        return await stream.get_final_message()


WAYS: list[Callable[[str, Seen], Any]] = [
    responses_plain,
    responses_plain_async,
    responses_stream,
    responses_stream_async,
    chat_plain,
    chat_plain_async,
    chat_stream,
    chat_stream_async,
    messages_plain,
    messages_plain_async,
    messages_stream,
    messages_stream_async,
]
TOKENS: dict[str, Callable[[Any], tuple[int, int]]] = {
    "responses": lambda answer: (answer.usage.input_tokens, answer.usage.output_tokens),
    "chat": lambda answer: (answer.usage.prompt_tokens, answer.usage.completion_tokens),
    "messages": lambda answer: (answer.usage.input_tokens, answer.usage.output_tokens),
}
TOOLS: dict[str, Callable[[Any], list[str]]] = {
    "responses": lambda answer: [item.name for item in answer.output if item.type == "function_call"],
    "chat": lambda answer: [call.function.name for call in answer.choices[0].message.tool_calls],
    "messages": lambda answer: [block.name for block in answer.content if block.type == "tool_use"],
}


ADDED = ("index", "parsed", "parsed_arguments", "parsed_output")
"""Numbers of tool calls and readings of JSON texts: the SDKs' streaming helpers put them in."""
NOT_IN_THE_FORMAT = ("created",)
"""A chat stream's record has no other top-level fields than the reference's."""


def substance(value: Any) -> Any:
    """An answer less what only one side has; null and an empty text are alike."""
    if isinstance(value, dict):
        left_out = (*ADDED, *NOT_IN_THE_FORMAT)
        return {key: substance(item) for key, item in value.items() if item not in (None, "") and key not in left_out}
    return [substance(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("server", ["h11", "httptools", "hypercorn"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_what_an_sdk_has_in_the_end_is_on_disk_when_it_has_seen_the_end(
    served: Served, rollout_id: str, server: str, way: Callable[[str, Seen], Any]
) -> None:
    found: list[dict[str, Any]] = []

    def seen() -> None:
        found.extend(served.records(rollout_id))

    answer = way(served.url(f"{server}-sdk", rollout_id), seen)
    if isinstance(answer, Awaitable):
        answer = await answer
    [record] = found
    assert found == served.records(rollout_id)
    dialect, plain = way.__name__.split("_")[:2]
    assert (dialect, 200, None) == (record["dialect"], record["status_code"], record["error_category"])
    assert ((plain == "stream") or None) == record["request"].get("stream")
    assert substance(answer.to_dict()) == substance(record["response"])

    [call] = read_model_call_records(served.store, rollout_id)
    assert TOKENS[dialect](answer) == (call.tokens_in, call.tokens_out)
    assert TOOLS[dialect](answer) == ["population", "population"][: len(call.tool_calls)] != []
    assert ("scripted-1", dialect) == (call.model, call.dialect)


async def test_many_sdk_clients_of_one_rollout_at_once_leave_a_record_each(served: Served, rollout_id: str) -> None:
    url = served.url("httptools-sdk", rollout_id)
    ways = [chat_stream_async, messages_plain_async, responses_stream_async] * 8
    await asyncio.gather(*(way(url, lambda: None) for way in ways))
    records = served.records(rollout_id)
    assert {"chat": 8, "messages": 8, "responses": 8} == {
        dialect: sum(record["dialect"] == dialect for record in records) for dialect in TOKENS
    }
    assert (24, {None}) == (
        len({record["model_call_id"] for record in records}),
        {record["error_category"] for record in records},
    )
