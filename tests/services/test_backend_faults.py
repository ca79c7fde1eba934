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
FAULTS: dict[str, Fault | None] = {
    "refused": None,  # nobody listens there
    "hanging": Fault.HANG,
    "resetting": Fault.RESET,
    "503 with Retry-After": Fault.UNAVAILABLE,
    "killed in mid-export": Fault.HANG,
    "a span a second": Fault.SLOW,
    "dripping": Fault.DRIPPING,
    "answering without end": Fault.ENDLESS,
}


class Backend:
    """A backend at fault until it is mended, at the same port then.

    Args:
        name: of `FAULTS`.
        stack: what ends it.
    """

    def __init__(self, protocol: Protocol, name: str, stack: ExitStack) -> None:
        self.name = name
        self._stack = stack
        self._fault = FAULTS[name]
        self.receiver = Receiver(protocol, None)
        (self.receiver.port,) = free_ports(1)
        self._life = ExitStack()
        if self._fault is not None:
            self._live(self._fault)

    def _live(self, fault: Fault | None) -> None:
        self._life = self._stack.enter_context(ExitStack())
        running = receiver_running(self.receiver.protocol, port=self.receiver.port, fault=fault)
        self.receiver = self._life.enter_context(running)

    def variables(self) -> dict[str, str]:
        """Those that send spans there, and give up on a request after a second, or on a slow one later."""
        timeout = "10" if self._fault is Fault.SLOW else "1"
        return {**towards(self.receiver), "OTEL_EXPORTER_OTLP_TIMEOUT": timeout}

    def wait_until_felt(self, server: CapturedServer) -> None:
        """Return when the server has tried to send. One that is to be killed has a request then, and is."""
        if self._fault is None:
            server.wait_for_log(f"spans to {self.receiver.endpoint}")
        else:
            self.receiver.wait_for_requests(1)
        if self.name == "killed in mid-export":
            self._life.close()

    def mend(self) -> None:
        """From now on it takes all."""
        if self.name in ("refused", "killed in mid-export"):
            self._live(None)
        else:
            self.receiver.fault = None


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
@pytest.mark.parametrize("fault", FAULTS)
def test_a_backend_that_recovers_gets_every_span_once_and_the_server_goes_on(
    protocol: Protocol, fault: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        backend = Backend(protocol, fault, stack)
        with captured_server(tmp_path, **backend.variables()) as server:
            sent = serve(server, "0-0", 1)
            backend.wait_until_felt(server)
            sent |= serve(server, "0-1", 29)
            taken = len(backend.receiver.spans)
            assert fault == "a span a second" or 0 == taken
            backend.mend()
            backend.receiver.wait_for(30)
            sent |= serve(server, "0-2", 5)
            backend.receiver.wait_for(35)
        assert (dict.fromkeys(sent, 1), Counter()) == (arrived(backend.receiver), shed(server))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_backend_that_takes_a_span_a_second_gets_them_in_its_own_time(protocol: Protocol, tmp_path: Path) -> None:
    with receiver_running(protocol, fault=Fault.SLOW) as receiver:
        with captured_server(tmp_path, **{**towards(receiver), "OTEL_EXPORTER_OTLP_TIMEOUT": "10"}) as server:
            sent = serve(server, "0-0", 6)
            receiver.wait_for(6)
        assert dict.fromkeys(sent, 1) == arrived(receiver)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("fault", FAULTS)
def test_memory_stays_within_the_queues_bound_and_what_was_shed_is_counted(
    protocol: Protocol, fault: str, tmp_path: Path
) -> None:
    """A hundred calls of a megabyte while next to nothing goes out: their content is let go, and not one span."""
    with ExitStack() as stack:
        backend = Backend(protocol, fault, stack)
        variables = {**backend.variables(), **CONTENT, "OTEL_GYM_MIRROR_QUEUE_BYTES": str(8 * MEGABYTE)}
        with captured_server(tmp_path, **variables) as server:
            sent = serve(server, "warm", 10, MEGABYTE)
            backend.wait_until_felt(server)
            before = server.resident_kb()
            sent |= serve(server, "0-0", 90, MEGABYTE)
            grown = server.resident_kb() - before
            backend.mend()
            backend.receiver.wait_for(100)
        spans = backend.receiver.spans
        lightened = [span for span in spans if "gen_ai.input.messages" not in plain(span.attributes)]
        assert dict.fromkeys(sent, 1) == arrived(backend.receiver)
    assert 40_000 > grown
    assert 50 < len(lightened)
    assert {"without their content": len(lightened)} == shed(server)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("fault", FAULTS)
def test_spans_that_find_no_room_are_counted_one_by_one(protocol: Protocol, fault: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        backend = Backend(protocol, fault, stack)
        with captured_server(tmp_path, **backend.variables(), OTEL_GYM_MIRROR_QUEUE_BYTES="100000") as server:
            sent = serve(server, "0-0", 1)
            backend.wait_until_felt(server)
            sent |= serve(server, "0-1", 99)
            backend.mend()
            last = span_id(server.record("0-1"))
            spans = backend.receiver.spans
            while last not in {span.span_id.hex() for span in spans}:
                spans = backend.receiver.wait_for(len(spans) + 1)
        lost = len(sent) - len(arrived(backend.receiver))
    assert (True, {"lost": lost}) == (0 < lost < 100, shed(server))
    assert {1} == set(arrived(backend.receiver).values())
