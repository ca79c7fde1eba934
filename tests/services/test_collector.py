"""A Collector with the limits that it has when nobody sets any, between a captured server and Jaeger."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import signal
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_ports
from tests.servers.processes import wait_until
from tests.services.captured import CapturedServer, captured_server, span_id
from tests.services.collector import Collector, collector_running
from tests.services.jaeger import Jaeger, attributes

pytestmark = pytest.mark.servers

CONTENT = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"}
MANY = 30 * 1024 * 1024
IN_TEXT, AS_PART = 10, 15  # which calls have the image
SHED = "otel_gym.mirror.shed_content_bytes"


def towards(collector: Collector, protocol: str) -> dict[str, str]:
    """The standard variables that send spans there."""
    endpoint = collector.otlp_http if protocol == "http/protobuf" else collector.otlp_grpc
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}


def asking(text: str) -> list[dict[str, str]]:
    """Messages of a chat."""
    return [{"role": "user", "content": text}]


def durable(server: CapturedServer, rollout_id: str) -> list[tuple[int, str]]:
    """Length and hash of each line of a rollout, as its span should have them."""
    lines = server.store.path_for(rollout_id).read_bytes().splitlines(keepends=True)
    return [(len(line), hashlib.sha256(line).hexdigest()) for line in lines]


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_call_of_30_mb_arrives_as_a_light_span_among_whole_ones(
    jaeger: Jaeger, collector: Collector, protocol: str, tmp_path: Path
) -> None:
    """The Collector takes 4 MiB a message over gRPC and 20 MiB a body over HTTP, and what is larger it takes never."""
    with captured_server(tmp_path, **CONTENT, **towards(collector, protocol)) as server:
        server.call("0-0", messages=asking("before"))
        assert 200 == server.call("0-0", messages=asking("x" * MANY)).status_code
        server.call("0-0", messages=asking("after"))
        found = jaeger.wait_for(server.trace_id("0-0"), 3)
        server.wait_for_log("1 without their content")
        records = server.store.read("0-0")
        lines = durable(server, "0-0")
    before, large, after = (span.tags for span in found)
    assert [span_id(record) for record in records] == [span.span_id for span in found]
    assert MANY == len(records[1]["request"]["messages"][0]["content"])
    assert lines == [(tags["otel_gym.record.bytes"], tags["otel_gym.record.sha256"]) for tags in (before, large, after)]
    assert "before" in before["gen_ai.input.messages"]
    assert "after" in after["gen_ai.input.messages"]
    assert (set(), True) == ({name for name in large if "messages" in name}, large[SHED] > MANY)
    assert (None, None, 7) == (before.get(SHED), after.get(SHED), large["gen_ai.usage.input_tokens"])
    assert 5000 > max(len(str(value)) for value in large.values())


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_an_image_of_5_mb_among_small_calls_costs_only_its_own_content(
    jaeger: Jaeger, collector: Collector, protocol: str, tmp_path: Path
) -> None:
    """Input 28 of the field page, with an image as an agent's tool hands it over: as a `data:` URL in its text.

    As a part of its own an image is named by its hash, so that its call loses nothing.
    """
    url, data = png(5_000_000)
    as_part = [{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": {"url": url}}]
    large: dict[int, Any] = {IN_TEXT: f"![screenshot]({url})", AS_PART: as_part}
    with captured_server(tmp_path, **CONTENT, **towards(collector, protocol)) as server:
        for number in range(22):
            server.call("0-0", messages=[{"role": "user", "content": large.get(number, f"small {number}")}])
        found = [span.tags for span in jaeger.wait_for(server.trace_id("0-0"), 22)]
        records, lines = server.store.read("0-0"), durable(server, "0-0")
        taken = protocol == "http/protobuf"  # 20 MiB a body; over gRPC a message has 4 MiB
        if not taken:
            server.wait_for_log("1 without their content")
    assert lines == [(tags["otel_gym.record.bytes"], tags["otel_gym.record.sha256"]) for tags in found]
    assert [large[number] for number in sorted(large)] == [
        records[number]["request"]["messages"][0]["content"] for number in sorted(large)
    ]
    read = [json.loads(tags.get("gen_ai.input.messages", "null")) for tags in found]
    said = [None if messages is None else messages[0]["parts"] for messages in read]
    named = {"type": "uri", "modality": "image", "mime_type": "image/png", "size": len(data)}
    named["uri"] = f"ni:///sha-256;{base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')}"
    expected: list[Any] = [[{"type": "text", "content": f"small {number}"}] for number in range(22)]
    expected[AS_PART] = [{"type": "text", "content": "what is this?"}, named]
    expected[IN_TEXT] = [{"type": "text", "content": large[IN_TEXT]}] if taken else None
    assert expected == said
    shed = [tags.get(SHED) for tags in found]
    assert [None] * 21 == shed[:IN_TEXT] + shed[IN_TEXT + 1 :]
    assert taken == (shed[IN_TEXT] is None)
    if not taken:
        assert not {name for name in found[IN_TEXT] if name.endswith((".messages", ".definitions", ".instructions"))}
        assert found[IN_TEXT][SHED] > len(url)
        assert (7, 5) == tuple(found[IN_TEXT][f"gen_ai.usage.{way}_tokens"] for way in ("input", "output"))


def png(size: int) -> tuple[str, bytes]:
    """A grey picture of noise, about so many bytes; as a `data:` URL and as it is."""
    width = 1000
    rows = b"".join(b"\0" + random.Random(row).randbytes(width) for row in range(size // width))
    header = struct.pack(">IIBBBBB", width, size // width, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )
    return f"data:image/png;base64,{base64.b64encode(data).decode()}", data


def test_a_collector_that_is_killed_in_mid_export_gets_the_rest_when_it_is_back(tmp_path: Path) -> None:
    ports = free_ports(2)
    folder = tmp_path / "collector"
    folder.mkdir()
    with (
        collector_running(folder, otlp_ports=ports) as first,
        captured_server(tmp_path, **CONTENT, **towards(first, "http/protobuf")) as server,
    ):
        for number in range(20):
            server.call("0-0", messages=asking("x" * 300_000))
            if number == 10:
                os.kill(first.pid, signal.SIGKILL)
        for _ in range(5):
            assert 200 == server.call("1-0").status_code
        with collector_running(folder, otlp_ports=ports) as second:
            ids = [[span_id(record) for record in server.store.read(rollout_id)] for rollout_id in ("0-0", "1-0")]
            wait_until(lambda: set(ids[1]) <= {span["spanId"] for span in second.spans()}, 60)
            server.call("2-0")
            last = span_id(server.record("2-0"))
            wait_until(lambda: last in [span["spanId"] for span in second.spans()], 60)
            arrived = {span["spanId"]: attributes(span) for span in second.spans()}
    assert [20, 5] == list(map(len, ids))
    assert set(ids[0][11:]) <= set(arrived)  # those before it may have been on its conscience when it died
    assert all(tags["otel_gym.record.durable"] is True for tags in arrived.values())
