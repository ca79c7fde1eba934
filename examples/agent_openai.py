"""An agent loop of the OpenAI SDK, Responses API. Nothing in it knows of capture but the base URL:

python -m examples.agent_openai http://127.0.0.1:8000/ng-rollout/0-0/v1
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from openai import AsyncOpenAI
from openai.types.responses import Response

from examples.population import QUESTION, RESPONSES_TOOL, population


async def ask(client: AsyncOpenAI, conversation: list[Any], stream: bool) -> Response:
    """One model call."""
    if not stream:
        return await client.responses.create(model="scripted-1", input=conversation, tools=[RESPONSES_TOOL])
    async with client.responses.stream(model="scripted-1", input=conversation, tools=[RESPONSES_TOOL]) as events:
        return await events.get_final_response()


async def run(base_url: str, *, stream: bool = False) -> str:
    """Ask, call the tool as often as the model wants it, return the answer."""
    conversation: list[Any] = [{"role": "user", "content": QUESTION}]
    async with AsyncOpenAI(base_url=base_url, api_key="none") as client:
        while not (response := await ask(client, conversation, stream)).output_text:
            conversation += response.output
            for call in (item for item in response.output if item.type == "function_call"):
                result = population(**json.loads(call.arguments))
                conversation.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
    return response.output_text


if __name__ == "__main__":
    print(asyncio.run(run(sys.argv[1])))
