"""The example's agent; one in twenty of its rollouts fails after its model calls, the first time, in several ways."""

from __future__ import annotations

import json

from examples.agent_server import app as agent
from otel_gym.asgi import Message, Receive, Scope, Send
from tests.collect.injection import failure_of

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
    failure = failure_of(*pair) if pair not in failed else None

    async def again() -> Message:
        return {"type": "http.request", "body": body}

    async def swallow(message: Message) -> None:
        """The agent's answer goes nowhere."""

    await agent(scope, again, send if failure is None else swallow)
    if failure is not None:
        failed.add(pair)
        await _fail(failure, receive, send)
    return None


async def _fail(how: str, receive: Receive, send: Send) -> None:
    if how == "timeout":  # until the collector has hung up
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    length = [(b"content-length", b"1000")] if how == "cut" else []
    await send({"type": "http.response.start", "status": 500 if how == "status" else 200, "headers": length})
    await send({"type": "http.response.body", "body": b'{"reward": 1', "more_body": how == "cut"})
    if how == "cut":
        raise ConnectionAbortedError("as the test wants it")
