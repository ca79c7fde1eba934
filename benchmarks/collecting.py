"""What `otel-gym collect` costs: rollouts/s against an agent that answers at once, beside a bare loop of httpx.

python -m benchmarks.collecting FOLDER
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
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx

from benchmarks.attaching import lines_of_calls
from benchmarks.bench import Bench, Check, MissingRecordsError, Outcome
from otel_gym.asgi import Receive, Scope, Send
from otel_gym.collect import Collection, Plan
from otel_gym.collect.collection import TOLD_AFTER_S
from otel_gym.collecting import FRESH_SECONDS

CONCURRENCY = 64
TASKS = 2_000
ROUNDS = 5
LEAST_SHARE = 80.0
WAITED_S = TOLD_AFTER_S + 1.5 * FRESH_SECONDS
CALL = next(lines_of_calls(0))
RESULT = json.dumps({"reward": 1.0, "response": {"output": [{"type": "message", "content": "x" * 400}]}}).encode()


async def run(bench: Bench) -> Outcome:
    """Both sides in turn, some rounds; the share is the median of the rounds'. Then the same with calls to attach."""
    tasks = bench.times(TASKS, least=2 * CONCURRENCY)
    with bench.folder() as folder, agent(folder) as url:
        path = folder / "tasks.jsonl"
        path.write_text("".join(f'{{"prompt": "{"x" * 400}", "n": {number}}}\n' for number in range(tasks)))
        bare, collected, share = await _rounds(url, folder, path, tasks, ())
        _, attached, share_attached = await _rounds(f"{url}/captured", folder, path, tasks, [folder])
    note = (
        f"collect, {tasks:,} tasks at {CONCURRENCY} at once: bare httpx {bare:,.0f} rollouts/s, "
        f"collected, each row fsynced, {collected:,.0f} rollouts/s; with a capture directory, cleared and one call of "
        f"8 KB attached, {attached:,.0f} rollouts/s, {share_attached:.0f} % of a bare loop that attaches nothing"
    )
    check = Check("collect", "rollouts/s of a bare httpx loop", share, LEAST_SHARE, "%", at_least=True)
    return Outcome(checks=(check,), notes=(note,))


async def _rounds(
    url: str, folder: Path, tasks: Path, count: int, capture_dirs: Sequence[Path]
) -> tuple[float, float, float]:
    """Rollouts/s of the bare loop and collected, and the share in per cent."""
    bare, collected = [], []
    for _ in range(ROUNDS):
        bare.append(count / await _bare(url, tasks, folder / "bare.jsonl"))
        collected.append(count / await _collected(url, tasks, folder / "rollouts.jsonl", count, capture_dirs))
    shares = [100 * ours / theirs for ours, theirs in zip(collected, bare, strict=True)]
    return statistics.median(bare), statistics.median(collected), statistics.median(shares)


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


async def _collected(url: str, tasks: Path, out: Path, count: int, capture_dirs: Sequence[Path]) -> float:
    """Seconds; with directories less the wait, once a collection, until model servers know of it, and have told all."""
    began = time.perf_counter()
    plan = Plan(url, tasks, out, concurrency=CONCURRENCY, capture_dirs=capture_dirs)
    tally = await Collection(plan).run()
    took = time.perf_counter() - began - (WAITED_S if capture_dirs else 0.0)
    await asyncio.to_thread(out.unlink)
    if (tally.done, tally.calls) != (count, count if capture_dirs else 0):
        raise MissingRecordsError(f"{tally.done} of {count} rollouts have a result, {tally.calls} calls were attached")
    return took


@contextlib.contextmanager
def agent(folder: Path) -> Iterator[str]:
    """An agent that answers at once, as a child; its URL. Under `/captured` it leaves a call in the folder before."""
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-m", "benchmarks.collecting", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=root) as child:
        try:
            assert child.stdout is not None
            yield f"http://127.0.0.1:{int(child.stdout.readline())}"
        finally:
            child.terminate()


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    body = (message := await receive())["body"]
    while message.get("more_body"):
        body += (message := await receive())["body"]
    if scope["path"].startswith("/captured"):
        row = json.loads(body)
        path = Path(sys.argv[1]) / f"{row['_ng_task_index']}-{row['_ng_rollout_index']}.capture.jsonl"
        path.write_bytes(CALL)
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
        # The bare loop knows nothing of connections that are closed while they wait.
        config = uvicorn.Config(_answer, log_level="warning", access_log=False, timeout_keep_alive=600)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
