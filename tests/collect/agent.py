"""An agent's server that does what the row says, and writes down each row that it gets.

    uvicorn tests.collect.agent:app          with AGENT_LOG naming a file

The key `do` of a row: `sleep` seconds first; `status` instead of a result, for the first `times` posts of the row;
`text` instead of a result; `bytes`, so many in pieces before it, without a length, or with one where it `says`; `cut`,
hang up in the middle.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]

posts: Counter[tuple[int, int]] = Counter()


def write_down(row: dict[str, Any]) -> None:
    with Path(os.environ["AGENT_LOG"]).open("ab") as log:
        log.write(json.dumps(row).encode() + b"\n")


async def sleep(seconds: float, receive: Callable[[], Awaitable[Message]]) -> None:
    """So long, or until the client has gone: a server waits for its requests before it ends."""
    with contextlib.suppress(asyncio.TimeoutError):
        while seconds and (await asyncio.wait_for(receive(), seconds))["type"] != "http.disconnect":
            pass


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    row = json.loads(body)
    write_down(row)
    pair = row["_ng_task_index"], row["_ng_rollout_index"]
    posts[pair] += 1
    do = row.get("do", {})
    await sleep(do.get("sleep", 0), receive)
    status = do.get("status", 200)
    if status != 200 and posts[pair] > do.get("times", 1_000_000):
        status = 200
    headers = [(b"content-type", b"application/json")]
    say = row.get("say", "")
    said = f'{{"reward": 1.50, "said": "{say}"}}'
    answer = do.get("text", said) if status == 200 else "not now"
    if "cut" in do:
        headers.append((b"content-length", b"1000"))
    if "says" in do:
        headers.append((b"content-length", str(do["bytes"] + len(answer)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if "cut" in do:
        await send({"type": "http.response.body", "body": b"{", "more_body": True})
        raise ConnectionAbortedError("as the row says")
    for _ in range(do.get("bytes", 0) // 65_536):
        await send({"type": "http.response.body", "body": b" " * 65_536, "more_body": True})
    await send({"type": "http.response.body", "body": answer.encode()})
