"""`python -m demo [--out DIRECTORY]`: run the demo; exit code 0 only if every expected record is there."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from demo.child import ChildError
from demo.collecting import ROLLOUT as COLLECTED
from demo.collecting import CollectError, collect
from demo.report import pretty, rollout_lines, shortfalls
from demo.rollouts import ROLLOUTS, run_all
from demo.server import APP, serving
from demo.traces import OTLP_PORT, destination, trace_address
from otel_gym.trace_ids import RUN_ID_FILE, run_id_of
from otel_gym_jsonl import CaptureStore


def main(arguments: list[str] | None = None) -> int:
    """Run three rollouts against a captured server and say what is on disk afterwards."""
    parser = argparse.ArgumentParser(prog="python -m demo", description="Three rollouts, captured.")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="where the files go and stay (%(default)s)")
    out: Path = parser.parse_args(arguments).out.resolve()

    store = CaptureStore(out / "model-calls")
    for rollout in ROLLOUTS:
        store.clear(rollout.id)  # of an earlier demo
    (store.directory / RUN_ID_FILE).unlink(missing_ok=True)  # its traces too
    variables = {"OTEL_GYM_MODEL_CALL_CAPTURE_DIR": str(store.directory), "OTEL_GYM_MODEL_SERVER_NAME": "policy"}
    spans = destination()
    variables |= spans
    print("A model server under uvicorn, capture switched on by its environment alone:\n")
    for name, value in variables.items():
        print(f"  {name}={value}")
    try:
        with serving(out / "server.log", variables) as url:
            print(f"  uvicorn {APP}   (now at {url})\n")
            print(f"Three agents at once, each at {url}/ng-rollout/<its rollout>:\n")
            for rollout, end in zip(ROLLOUTS, asyncio.run(run_all(url)), strict=True):
                print(f"  {rollout.id}  {rollout.title:<40} {end}")
            print("\nA team of agents behind a server of its own, whose rollouts are collected:\n")
            collected = collect(url, out, variables)
    except (ChildError, CollectError) as exc:
        print(exc, file=sys.stderr)
        return 1

    print("\nThe server is gone. What it left:\n")
    for rollout in ROLLOUTS:
        print("\n".join(rollout_lines(store, rollout)))
        if spans:
            print(f"  trace: {trace_address(run_id_of(store.directory), rollout.id)}")
        print()
    if not spans:
        print(f"No spans were sent: start a Jaeger on this machine (port {OTLP_PORT}), and they are.\n")
    wrong = [what for rollout in ROLLOUTS for what in shortfalls(store, rollout)]
    if wrong:
        print("\n".join(["Not all that was expected is there:", *wrong]), file=sys.stderr)
        return 1
    print(f"One record of rollout {ROLLOUTS[0].id}, as it stands in its file (there on one line):\n")
    print(pretty(store.read(ROLLOUTS[0].id)[0]))
    if spans:
        print(f"\nThe collected rollout {COLLECTED}:\n")
        print(f"  trace: {trace_address(run_id_of(store.directory), COLLECTED)}")
    print(f"\nThe row of the collected rollout, as it stands in {out / 'rollouts.jsonl'}, less its longer parts:\n")
    print(pretty(collected))
    print("\nEvery expected record is there.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
