"""Whatever a backend does to us, calls are answered, records durable, memory bounded, and losses counted."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.ports import free_ports
from tests.services.captured import CapturedServer, captured_server, span_id
from tests.services.receiver import Fault, Protocol, Receiver, plain, receiver_running

pytestmark = pytest.mark.servers

PROTOCOLS: tuple[Protocol, ...] = ("http", "grpc")
MEGABYTE = 1_000_000
CONTENT = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"}


def towards(receiver: Receiver) -> dict[str, str]:
    """The standard variables that send spans there, and give up on a request after a second."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": receiver.exporter_protocol,
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
    }


def serve(server: CapturedServer, rollout_id: str, calls: int, size: int = 2) -> set[str]:
    """So many calls, each answered and each durable before its answer ended; the ids of their spans."""
    for number in range(calls):
        answer = server.call(rollout_id, messages=[{"role": "user", "content": "x" * size}])
        assert (200, number + 1) == (answer.status_code, len(server.store.read(rollout_id)))
    assert not server.store.is_incomplete(rollout_id)
    return {span_id(record) for record in server.store.read(rollout_id)}


def arrived(receiver: Receiver) -> Counter[str]:
    """How often each span was taken."""
    return Counter(span.span_id.hex() for span in receiver.spans)


def shed(server: CapturedServer) -> Counter[str]:
    """What the server says, when it has ended, that did not arrive."""
    counts: Counter[str] = Counter()
    for number, what in re.findall(r"(\d+) (lost|without their content)", server.logged()):
        counts[what] += int(number)
    return counts


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("fault", [None, Fault.HANG, Fault.RESET, Fault.UNAVAILABLE])
def test_a_backend_that_recovers_gets_every_span_once_and_the_server_goes_on(
    protocol: Protocol, fault: Fault | None, tmp_path: Path
) -> None:
    """None: nobody listens there at first."""
    (port,) = free_ports(1)
    with ExitStack() as later:
        receiver = Receiver(protocol, None)
        receiver.port = port
        if fault is not None:
            receiver = later.enter_context(receiver_running(protocol, port=port, fault=fault))
        with captured_server(tmp_path, **towards(receiver)) as server:
            sent = serve(server, "0-0", 30)
            if fault is None:
                server.wait_for_log("wait; last:")
                receiver = later.enter_context(receiver_running(protocol, port=port))
            else:
                receiver.wait_for_requests(2)
                assert [] == receiver.spans
                receiver.fault = None
            receiver.wait_for(30)
            sent |= serve(server, "0-1", 5)
            receiver.wait_for(35)
        assert (dict.fromkeys(sent, 1), Counter()) == (arrived(receiver), shed(server))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_backend_that_takes_a_span_a_second_gets_them_in_its_own_time(protocol: Protocol, tmp_path: Path) -> None:
    with receiver_running(protocol, fault=Fault.SLOW) as receiver:
        with captured_server(tmp_path, **{**towards(receiver), "OTEL_EXPORTER_OTLP_TIMEOUT": "10"}) as server:
            sent = serve(server, "0-0", 6)
            receiver.wait_for(6)
        assert dict.fromkeys(sent, 1) == arrived(receiver)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_memory_stays_within_the_queues_bound_and_what_was_shed_is_counted(protocol: Protocol, tmp_path: Path) -> None:
    """A hundred calls of a megabyte while nothing goes out: their content is let go, and not one span."""
    with receiver_running(protocol, fault=Fault.HANG) as receiver:
        variables = {**towards(receiver), **CONTENT, "OTEL_GYM_MIRROR_QUEUE_BYTES": str(8 * MEGABYTE)}
        with captured_server(tmp_path, **variables) as server:
            sent = serve(server, "warm", 10, MEGABYTE)
            before = server.resident_kb()
            sent |= serve(server, "0-0", 90, MEGABYTE)
            grown = server.resident_kb() - before
            receiver.fault = None
            receiver.wait_for(100)
        lightened = [span for span in receiver.spans if "gen_ai.input.messages" not in plain(span.attributes)]
        assert dict.fromkeys(sent, 1) == arrived(receiver)
    assert 40_000 > grown
    assert 92 <= len(lightened)
    assert {"without their content": len(lightened)} == shed(server)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_spans_that_find_no_room_are_counted_one_by_one(protocol: Protocol, tmp_path: Path) -> None:
    with receiver_running(protocol, fault=Fault.UNAVAILABLE) as receiver:
        variables = {**towards(receiver), "OTEL_GYM_MIRROR_QUEUE_BYTES": "100000"}
        with captured_server(tmp_path, **variables) as server:
            sent = serve(server, "0-0", 100)
            receiver.fault = None
            last = span_id(server.record("0-0"))
            receiver.wait_for(1)
            while last not in arrived(receiver):
                receiver.wait_for(len(receiver.spans) + 1)
    lost = len(sent) - len(arrived(receiver))
    assert (True, {"lost": lost}) == (0 < lost < 100, shed(server))
