"""Make docs/schemas/*.json of the models of `otel_gym.rollouts`: to stdout, or with --write in place."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from otel_gym.rollouts.observations import OBSERVATIONS_KEY, AgentObservations
from otel_gym.rollouts.perf import PERF_KEY, RolloutPerf
from otel_gym.rollouts.trajectory import TRAJECTORY_KEY, TrajectoryRecord

MODELS: dict[str, type[BaseModel]] = {
    OBSERVATIONS_KEY: AgentObservations,
    TRAJECTORY_KEY: TrajectoryRecord,
    PERF_KEY: RolloutPerf,
}


def schema(key: str) -> dict[str, Any]:
    """The JSON Schema of what stands below a key of a row."""
    found = _plain(MODELS[key].model_json_schema())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": key, **found}


def _plain(part: Any, names: bool = False) -> Any:
    """The same whichever pydantic makes it: without what says nothing, and 0 for 0.0.

    Args:
        part: of a schema.
        names: whether its keys are names of fields or definitions, not words of JSON Schema.
    """
    if isinstance(part, list):
        return [_plain(item) for item in part]
    if isinstance(part, dict):
        silent = set() if names else {"title"} | ({"enum"} if "const" in part else set())
        if not names and part.get("additionalProperties") is True:
            silent.add("additionalProperties")
        return {
            key: _plain(value, not names and key in ("properties", "$defs"))
            for key, value in part.items()
            if key not in silent
        }
    return int(part) if isinstance(part, float) and part.is_integer() else part


def text(key: str) -> str:
    """The file of a key."""
    return json.dumps(schema(key), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def main() -> None:
    """Print the schemas, or write them into the folder beside this script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/schemas/*.json")
    if parser.parse_args().write:
        for key in MODELS:
            (Path(__file__).parent / "schemas" / f"{key}.json").write_text(text(key), encoding="utf-8")
    else:
        sys.stdout.write(json.dumps({key: schema(key) for key in MODELS}, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
