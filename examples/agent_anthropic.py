"""An agent loop of the Anthropic SDK, Messages API. Nothing in it knows of capture but the base URL:

python -m examples.agent_anthropic http://127.0.0.1:8000/ng-rollout/0-2
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from anthropic import AsyncAnthropic

from examples.population import MESSAGES_TOOL, QUESTION, population


async def ask(client: AsyncAnthropic, conversation: list[Any], stream: bool) -> Any:
    """One model call."""
    asked: dict[str, Any] = {"max_tokens": 1024, "messages": conversation, "tools": [MESSAGES_TOOL]}
    if not stream:
        return await client.messages.create(model="scripted-1", **asked)
    async with client.messages.stream(model="scripted-1", **asked) as events:
        return await events.get_final_message()


async def run(base_url: str, *, stream: bool = True) -> str:
    """Ask, call the tool as often as the model wants it, return the answer."""
    conversation: list[Any] = [{"role": "user", "content": QUESTION}]
    async with AsyncAnthropic(base_url=base_url, api_key="none") as client:
        while (message := await ask(client, conversation, stream)).stop_reason == "tool_use":
            calls = [block for block in message.content if block.type == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": c.id, "content": population(**c.input)} for c in calls]
            conversation += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
    return "".join(block.text for block in message.content if block.type == "text")


if __name__ == "__main__":
    print(asyncio.run(run(sys.argv[1])))
