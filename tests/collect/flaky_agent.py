"""The example's agent; one in twenty of its rollouts ends with an error after its model calls, the first time."""

from __future__ import annotations

import json

from examples.agent_server import app as agent
from otel_gym.asgi import Message, Receive, Scope, Send
from tests.collect.injection import fails

failed: set[tuple[int, int]] = set()


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return await agent(scope, receive, send)
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    row = json.loads(body)
    pair = row["_ng_task_index"], row["_ng_rollout_index"]
    failing = fails(*pair) and pair not in failed
    failed.update({pair} if failing else ())

    async def again() -> Message:
        return {"type": "http.request", "body": body}

    async def swallow(message: Message) -> None:
        """The agent's answer goes nowhere."""

    await agent(scope, again, swallow if failing else send)
    if failing:
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"injected"})
    return None
