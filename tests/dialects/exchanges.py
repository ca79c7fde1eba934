"""The model calls of the conformance corpus as objects: what was asked, and what the answer amounts to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from otel_gym.dialects import DIALECTS, Dialect
from otel_gym.sse import events
from otel_gym_jsonl import json_text
from tests.conformance import corpus
from tests.conformance.run_cases import driver


class Exchange(NamedTuple):
    """One call; a body that is no object is None."""

    name: str
    dialect: Dialect
    request: dict[str, Any] | None
    response: dict[str, Any] | None


@cache
def exchanges() -> tuple[Exchange, ...]:
    """Every call of the corpus that goes to a captured route."""
    return tuple(
        exchange for case in corpus.all_cases() for step in _steps(case.spec) for exchange in _exchange(case.id, step)
    )


def _steps(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for step in (spec, *(spec.get("steps") or ())):
        if isinstance(step, dict) and "app" in step and "path" in step:
            yield step


def _exchange(name: str, step: dict[str, Any]) -> Iterator[Exchange]:
    path = step["path"].partition("?")[0]
    dialect = next((dialect for route, dialect in DIALECTS.items() if path.endswith(route)), None)
    if dialect is not None:
        body = b"".join(map(driver.to_bytes, step["app"].get("chunks", ())))
        is_stream = any(value.startswith("text/event-stream") for _, value in step["app"]["headers"] if value)
        response = dialect.assemble(events(body)).response if is_stream else _object(body)
        yield Exchange(name, dialect, _object(driver.to_bytes(step.get("request_body") or "")), response)


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        value = json_text.loads(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
