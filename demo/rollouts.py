"""The three rollouts, and what must be found of them afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from examples import agent_anthropic, agent_chat, agent_openai

HUNG_UP = "hung up in the middle of its second call"


class HungUpError(Exception):
    """The agent leaves in mid-stream, as one does whose time is over."""


@dataclass(frozen=True)
class Rollout:
    """One rollout.

    Attributes:
        id: the id in its URL, and so of its capture file.
        title: who calls what, for people.
        run: the agent loop; takes the server's URL, less the API's own path.
        dialect: of all its calls.
        categories: `error_category` of each call, in order.
    """

    id: str
    title: str
    run: Callable[[str], Awaitable[str]]
    dialect: str
    categories: tuple[str | None, ...]


def _hang_up_in_second_call() -> Callable[[Any], None]:
    calls: dict[str, int] = {}

    def watch(event: Any) -> None:
        if event.type == "chunk":
            calls[event.chunk.id] = calls.get(event.chunk.id, 0) + 1
            if len(calls) == 2 and calls[event.chunk.id] == 5:
                raise HungUpError

    return watch


async def _responses(url: str) -> str:
    return await agent_openai.run(f"{url}/v1")


async def _messages(url: str) -> str:
    return await agent_anthropic.run(url)


async def _chat(url: str) -> str:
    try:
        return await agent_chat.run(f"{url}/v1", watch=_hang_up_in_second_call())
    except HungUpError:
        return HUNG_UP


ROLLOUTS = (
    Rollout("0-0", "openai SDK, Responses, plain", _responses, "responses", (None, None, None)),
    Rollout("0-1", "anthropic SDK, Messages, streaming", _messages, "messages", (None, None, None)),
    Rollout("0-2", "openai SDK, Chat Completions, streaming", _chat, "chat", (None, "stream_truncated")),
)


async def run_all(url: str) -> list[str]:
    """Run all rollouts at once; what each ended with, in order."""
    return list(await asyncio.gather(*(rollout.run(f"{url}/ng-rollout/{rollout.id}") for rollout in ROLLOUTS)))
