"""With content off no byte of anybody's payload leaves the machine, and none is in our log."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.services.captured import PATHS, CapturedServer, captured_server, span_id
from tests.services.receiver import Fault, Protocol, plain, receiver_running

pytestmark = pytest.mark.servers

CALLS = 200
PLAYS = ("answer", "answer", "answer", "refuse", "raise", "cut")


def tools(marker: str) -> dict[str, list[dict[str, Any]]]:
    """A tool of this name, as each dialect describes it."""
    schema = {"type": "object", "properties": {marker: {"type": "string", "description": marker}}}
    described = {"name": marker, "description": marker, "parameters": schema}
    return {
        "chat": [{"type": "function", "function": described}],
        "responses": [{"type": "function", **described}],
        "messages": [{"name": marker, "description": marker, "input_schema": schema}],
    }


def request(marker: str, dialect: str) -> dict[str, Any]:
    """Payload wherever a request may hold it."""
    body: dict[str, Any] = {
        "say": marker,
        "user": marker,
        "metadata": {marker: marker, "user_id": marker},
        "tools": tools(marker)[dialect],
        "tool_choice": {"type": "function", "function": {"name": marker}, "name": marker},
        "stop": [marker],
        "stop_sequences": [marker],
        "reasoning_effort": marker,
        "reasoning": {"effort": marker, "summary": marker},
        "thinking": {"type": marker},
        "response_format": {"type": "json_schema", "json_schema": {"name": marker, "schema": {"title": marker}}},
        "service_tier": marker,
        "prompt_cache_key": marker,
        "instructions": marker,
        "system": [{"type": "text", "text": marker}],
        "temperature": marker,
        "max_tokens": marker,
        "seed": marker,
        "n": marker,
        marker: {marker: [marker]},
    }
    call = {"id": marker, "type": "function", "function": {"name": marker, "arguments": marker}}
    image = {"type": "image_url", "image_url": {"url": f"https://{marker}.test/{marker}.png"}}
    conversation: list[dict[str, Any]] = [
        {"role": "system", "content": marker},
        {"role": "user", "content": [{"type": "text", "text": marker}, image], "name": marker},
        {"role": "assistant", "content": None, "refusal": marker, "tool_calls": [call], "reasoning_content": marker},
        {"role": "tool", "tool_call_id": marker, "content": marker},
        {"role": marker, "content": marker},
    ]
    if dialect == "responses":
        items = [{"type": "function_call", "call_id": marker, "name": marker, "arguments": marker}, {"type": marker}]
        return {**body, "input": [{"role": "user", "content": [{"type": "input_text", "text": marker}]}, *items]}
    return {**body, "messages": conversation}


def headers(marker: str, is_valid: bool) -> dict[str, str]:
    """Keys, cookies, and headers of any name; a trace state that is valid or not."""
    named = (
        "user-agent",
        "x-api-key",
        "cookie",
        "baggage",
        "referer",
        "x-request-id",
        "traceparent",
        "x-forwarded-for",
    )
    return {
        "authorization": f"Bearer {marker}",
        **dict.fromkeys(named, marker),
        f"x-{marker}": marker,
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": f"vendor={marker}" if is_valid else f"{marker} is no trace state",
        "x-stainless-retry-count": marker,
    }


def serve(server: CapturedServer, marker: str, choice: random.Random, calls: int) -> set[str]:
    """So many calls, drawn by lot; the ids of their spans."""
    for number in range(calls):
        dialect, play = choice.choice(list(PATHS)), choice.choice(PLAYS)
        query = {"play": play, marker: marker}
        body = {**request(marker, dialect), "stream": choice.random() < 0.5}
        sent = headers(marker, is_valid=choice.random() < 0.5)
        server.call(f"{number % 8}-0", dialect, headers=sent, query=query, **body)
    records = [record for rollout_id in server.store.rollout_ids() for record in server.store.read(rollout_id)]
    assert (calls, True) == (len(records), all(marker in str(record) for record in records))
    return {span_id(record) for record in records}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("fault", [None, Fault.UNAVAILABLE])
def test_nothing_that_is_payload_leaves_with_content_off(
    protocol: Protocol, fault: Fault | None, tmp_path: Path
) -> None:
    choice = random.Random(f"{protocol} {fault}")
    marker = "".join(choice.choices("ghjkmnpqrstvwxyz", k=20))  # no hex digit: no id holds it by chance
    with receiver_running(protocol, fault=fault) as receiver:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": receiver.exporter_protocol,
            "OTEL_GYM_FOREIGN_TRACE": "link" if fault is None else "parent",
        }
        with captured_server(tmp_path, **variables) as server:
            sent = serve(server, marker, choice, CALLS)
            receiver.fault = None
            receiver.wait_for(CALLS)
    assert sent == {span.span_id.hex() for span in receiver.spans}
    assert {"m"} == {plain(span.attributes)["gen_ai.request.model"] for span in receiver.spans}
    assert [] == [place for request in receiver.requests for place in held(request.everything(), marker)]
    assert [] == held(server.log.read_bytes(), marker)


def held(data: bytes, marker: str) -> list[bytes]:
    """Where the marker is, each place with what stands around it."""
    places, position = [], -1
    while (position := data.lower().find(marker.encode(), position + 1)) >= 0:
        places.append(data[max(0, position - 60) : position + 40])
    return places
