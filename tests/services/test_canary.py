"""With content off no byte of anybody's payload leaves the machine, and none is in our log."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from otel_gym.testing import DialectName
from tests.servers.processes import wait_until
from tests.services.captured import CapturedServer, captured_server, span_id
from tests.services.marked import events, headers, request
from tests.services.receiver import Fault, Protocol, Receiver, plain, receiver_running

pytestmark = pytest.mark.servers

CALLS = 200
DIALECTS: tuple[DialectName, ...] = ("responses", "chat", "messages")
PLAYS = ("answer", "answer", "answer", "answer", "refuse", "raise", "cut", "garble")


def marker_of(choice: random.Random) -> str:
    return "".join(choice.choices("ghjkmnpqrstvwxyz", k=20))  # no hex digit: no id holds it by chance


def serve(server: CapturedServer, marker: str, choice: random.Random) -> set[str]:
    """The calls, drawn by lot; the ids of their spans."""
    for number in range(CALLS):
        dialect, play = choice.choice(DIALECTS), choice.choice(PLAYS)
        query = {"play": play, marker: marker}
        body = {**request(marker, dialect), "stream": choice.random() < 0.5}
        body["events"] = events(marker, dialect, fails=choice.random() < 0.2)
        sent = headers(marker, is_valid=choice.random() < 0.5)
        server.call(f"{number % 8}-0", dialect, headers=sent, query=query, **body)
    records = [record for rollout_id in server.store.rollout_ids() for record in server.store.read(rollout_id)]
    answers = [record["response"] for record in records if record["error_category"] is None]
    assert (CALLS, True) == (len(records), all(marker in str(record["request"]) for record in records))
    assert len(answers) > CALLS / 4
    assert all(str(answer).count(marker) > 3 for answer in answers if answer is not None)
    return {span_id(record) for record in records}


def held(data: bytes, marker: str) -> list[bytes]:
    """Where the marker is, each place with what stands around it."""
    places, position = [], -1
    while (position := data.lower().find(marker.encode(), position + 1)) >= 0:
        places.append(data[max(0, position - 60) : position + 40])
    return places


def nothing_left(receiver: Receiver, server: CapturedServer, sent: set[str], marker: str) -> None:
    """Every call's span came, and the marker in no byte of what came, nor of the log."""
    assert sent == {span.span_id.hex() for span in receiver.spans}
    assert {"m"} == {plain(span.attributes)["gen_ai.request.model"] for span in receiver.spans}
    assert [] == [place for request in receiver.requests for place in held(request.everything(), marker)]
    assert [] == held(server.log.read_bytes(), marker)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("fault", [None, Fault.UNAVAILABLE])
def test_nothing_that_is_payload_leaves_with_content_off(
    protocol: Protocol, fault: Fault | None, tmp_path: Path
) -> None:
    choice = random.Random(f"{protocol} {fault}")
    marker = marker_of(choice)
    with receiver_running(protocol, fault=fault) as receiver:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": receiver.exporter_protocol,
            "OTEL_GYM_FOREIGN_TRACE": "link" if fault is None else "parent",
        }
        with captured_server(tmp_path, **variables) as server:
            sent = serve(server, marker, choice)
            receiver.fault = None
            receiver.wait_for(CALLS)
    nothing_left(receiver, server, sent, marker)


def test_nothing_that_is_payload_leaves_by_the_processs_own_provider(tmp_path: Path) -> None:
    choice = random.Random("provider")
    marker = marker_of(choice)
    with receiver_running("http") as receiver:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "200"}
        with captured_server(tmp_path, "tests.services.traced_server:app", **variables) as server:
            sent = serve(server, marker, choice)
            receiver.wait_for(CALLS)
    assert any("OTel-OTLP-Exporter-Python" in str(value) for _, value in receiver.requests[0].headers)
    nothing_left(receiver, server, sent, marker)


@pytest.mark.parametrize("exporter", ["console", "otlp_json_file"])
def test_nothing_that_is_payload_leaves_by_an_exporter_that_prints(exporter: str, tmp_path: Path) -> None:
    choice = random.Random(exporter)
    marker = marker_of(choice)
    with captured_server(tmp_path, OTEL_TRACES_EXPORTER=exporter) as server:
        sent = serve(server, marker, choice)
        wait_until(lambda: all(map(server.printed.read_text().__contains__, sent)), 60)
    assert ([], []) == (held(server.printed.read_bytes(), marker), held(server.log.read_bytes(), marker))
