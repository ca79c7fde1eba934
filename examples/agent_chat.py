"""An agent loop of the OpenAI SDK, Chat Completions, streaming. `watch` sees every event as it comes.

python -m examples.agent_chat http://127.0.0.1:8000/ng-rollout/0-1/v1
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from openai import AsyncOpenAI

from examples.population import CHAT_TOOL, QUESTION, population


async def ask(client: AsyncOpenAI, conversation: list[Any], watch: Any) -> Any:
    """One model call."""
    asked: dict[str, Any] = {"messages": conversation, "tools": [CHAT_TOOL], "stream_options": {"include_usage": True}}
    async with client.chat.completions.stream(model="scripted-1", **asked) as events:
        async for event in events:
            watch(event)
        return (await events.get_final_completion()).choices[0].message


async def run(base_url: str, *, watch: Any = lambda event: None) -> str:
    """Ask, call the tool as often as the model wants it, return the answer."""
    conversation: list[Any] = [{"role": "user", "content": QUESTION}]
    async with AsyncOpenAI(base_url=base_url, api_key="none") as client:
        while (message := await ask(client, conversation, watch)).tool_calls:
            conversation.append(message)
            for call in message.tool_calls:
                result = population(**json.loads(call.function.arguments))
                conversation.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return str(message.content)


if __name__ == "__main__":
    print(asyncio.run(run(sys.argv[1])))
