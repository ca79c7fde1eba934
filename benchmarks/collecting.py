"""What `otel-gym collect` costs: rollouts/s against an agent that answers at once, beside a bare loop of httpx.

python -m benchmarks.collecting
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from benchmarks.bench import Bench, Check, MissingRecordsError, Outcome
from otel_gym.asgi import Receive, Scope, Send
from otel_gym.collect import Collection, Plan

CONCURRENCY = 64
TASKS = 2_000
ROUNDS = 5
LEAST_SHARE = 80.0
RESULT = json.dumps({"reward": 1.0, "response": {"output": [{"type": "message", "content": "x" * 400}]}}).encode()


async def run(bench: Bench) -> Outcome:
    """Both sides in turn, some rounds; the share is the median of the rounds'."""
    tasks = bench.times(TASKS, least=2 * CONCURRENCY)
    bare, collected = [], []
    with bench.folder() as folder, agent() as url:
        path = folder / "tasks.jsonl"
        path.write_text("".join(f'{{"prompt": "{"x" * 400}", "n": {number}}}\n' for number in range(tasks)))
        for number in range(ROUNDS):
            bare.append(tasks / await _bare(url, path, folder / f"bare-{number}.jsonl"))
            collected.append(tasks / await _collected(url, path, folder / f"rollouts-{number}.jsonl", tasks))
    share = 100 * statistics.median(ours / theirs for ours, theirs in zip(collected, bare, strict=True))
    note = (
        f"collect, {tasks:,} tasks at {CONCURRENCY} at once: bare httpx {statistics.median(bare):,.0f} rollouts/s, "
        f"collected, each row fsynced, {statistics.median(collected):,.0f} rollouts/s"
    )
    check = Check("collect", "rollouts/s of a bare httpx loop", share, LEAST_SHARE, "%", at_least=True)
    return Outcome(checks=(check,), notes=(note,))


async def _bare(url: str, tasks: Path, out: Path) -> float:
    """A loop as one writes it: post, read the JSON, append a line."""
    began = time.perf_counter()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=CONCURRENCY)
    with tasks.open("rb") as lines, out.open("wb") as rows:
        async with httpx.AsyncClient(timeout=None, limits=limits) as client:

            async def work() -> None:
                for number, line in enumerate(lines):
                    row = {**json.loads(line), "_ng_task_index": number, "_ng_rollout_index": 0}
                    answer = await client.post(f"{url}/run", json=row)
                    rows.write(json.dumps(answer.json()).encode() + b"\n")

            await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
    return time.perf_counter() - began


async def _collected(url: str, tasks: Path, out: Path, count: int) -> float:
    began = time.perf_counter()
    tally = await Collection(Plan(url, tasks, out, concurrency=CONCURRENCY)).run()
    took = time.perf_counter() - began
    if tally.done != count:
        raise MissingRecordsError(f"{tally.done} of {count} rollouts have a result")
    return took


@contextlib.contextmanager
def agent() -> Iterator[str]:
    """An agent that answers at once, as a child; its URL."""
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-m", "benchmarks.collecting"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=root) as child:
        try:
            assert child.stdout is not None
            yield f"http://127.0.0.1:{int(child.stdout.readline())}"
        finally:
            child.terminate()


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(RESULT)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": RESULT})


def main() -> None:
    """The child: serve on a free port and say which."""
    import uvicorn  # the parent needs none

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(_answer, log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
