"""Backends that refuse, hang, reset, answer 503, are slow, die or take small requests only: only the mirror waits."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_gym_otlp import Mirror
from otel_gym_otlp import attributes as names
from otel_gym_otlp.http_sender import judge
from otel_gym_otlp.outcome import Fate
from tests.otlp.spans import RECEIPT, call_ids, ended, ended_with, message
from tests.ports import free_port
from tests.services.receiver import Fault, Protocol, http_receiver, plain, receiver_running

both_protocols = pytest.mark.parametrize("protocol", ["http", "grpc"])


@contextlib.contextmanager
def mirror_to(endpoint: str, protocol: str, *, content: bool = False, **options: Any) -> Iterator[Mirror]:
    mirror = Mirror([{"endpoint": endpoint, "protocol": protocol, "content": content}], flush_at_exit_s=0, **options)
    try:
        yield mirror
    finally:
        mirror.close(0.2)


def offer(mirror: Mirror, *calls: str) -> None:
    for call in calls:
        mirror.offer(ended(call), RECEIPT)


@pytest.fixture(autouse=True)
def _short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")


@both_protocols
def test_a_backend_that_comes_late_gets_everything_once(protocol: Protocol) -> None:
    port = free_port()
    kind = "grpc" if protocol == "grpc" else "http/protobuf"
    with mirror_to(f"http://127.0.0.1:{port}", kind) as mirror:
        offer(mirror, *"abc")
        assert not mirror.flush(0.3)
        with receiver_running(protocol, port=port) as receiver:
            assert mirror.flush(20)
            assert ["a", "b", "c"] == sorted(call_ids(receiver.spans))
            assert ({}, 3, 0) == (dict(mirror.shed), mirror.sent, mirror.queued_bytes)


@both_protocols
@pytest.mark.parametrize("fault", [Fault.HANG, Fault.RESET, Fault.UNAVAILABLE, Fault.DRIPPING, Fault.ENDLESS])
def test_a_backend_at_fault_recovers_without_a_restart_and_nobody_waits_for_it(
    protocol: Protocol, fault: Fault
) -> None:
    with (
        receiver_running(protocol, fault=fault) as receiver,
        mirror_to(receiver.endpoint, receiver.exporter_protocol) as mirror,
    ):
        offer(mirror, "a", "b")
        receiver.wait_for_requests(1)
        began = time.monotonic()
        offer(mirror, *map(str, range(100)))
        assert time.monotonic() - began < 1, "a hundred copies, while the backend does nothing"
        assert 102 == mirror._lanes[0].queue.spans
        receiver.fault = None
        assert mirror.flush(20)
        assert {"a", "b", *map(str, range(100))} == set(call_ids(receiver.spans))
        assert (102, {}) == (len(receiver.spans), dict(mirror.shed))


@both_protocols
def test_a_backend_that_is_killed_in_mid_export_is_sent_the_same_again(protocol: Protocol) -> None:
    with receiver_running(protocol, fault=Fault.HANG) as receiver:
        mirror = Mirror([{"endpoint": receiver.endpoint, "protocol": receiver.exporter_protocol}], flush_at_exit_s=0)
        offer(mirror, "a")
        receiver.wait_for_requests(1)
    offer(mirror, "b")
    with receiver_running(protocol, port=receiver.port) as again:
        assert mirror.flush(20)
        assert ["a", "b"] == sorted(call_ids(again.spans))
    mirror.close(1)


def test_the_receiver_says_how_long_to_wait_and_is_heard() -> None:
    with http_receiver(fault=Fault.UNAVAILABLE) as receiver, mirror_to(receiver.endpoint, "http/protobuf") as mirror:
        offer(mirror, "a")
        receiver.wait_for_requests(1)
        time.sleep(0.8)  # Retry-After is a second
        assert 1 == len(receiver.requests)


@both_protocols
def test_a_slow_backend_is_asked_for_no_more_than_it_can_do(
    protocol: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "10")
    with receiver_running(protocol, fault=Fault.SLOW) as receiver:
        mirror = Mirror(
            [{"endpoint": receiver.endpoint, "protocol": receiver.exporter_protocol}], queue_spans=8, flush_at_exit_s=0
        )
        offer(mirror, "0")
        receiver.wait_for_requests(1)
        offer(mirror, *map(str, range(1, 30)))
        receiver.wait_for(3)
        assert [1, 1, 1] == [len(request.spans) for request in receiver.requests][:3]
        assert 8 >= mirror._lanes[0].queue.spans
        assert mirror.shed["spans"] >= 15
        receiver.fault = None
        assert mirror.flush(20)
        arrived = call_ids(receiver.spans)
        assert len(arrived) == len(set(arrived)) == 30 - mirror.shed["spans"]
        mirror.close(1)


def test_a_dead_backend_costs_no_more_memory_than_the_bound_and_content_goes_before_spans() -> None:
    bound = 2_000_000
    with mirror_to(f"http://127.0.0.1:{free_port()}", "http/protobuf", content=True, queue_bytes=bound) as mirror:
        for call in range(100):
            mirror.offer(ended_with({names.INPUT_MESSAGES: message("x" * 100_000)}, str(call)), RECEIPT)
            assert mirror.queued_bytes <= bound
        assert 0 == mirror.shed["spans"]
        assert 80 <= mirror.shed["content"] < 100
        assert mirror.shed["content_bytes"] >= 80 * 100_000
        for call in range(2000):
            mirror.offer(ended(str(call)), RECEIPT)
            assert mirror.queued_bytes <= bound
        assert mirror.shed["content"] >= 90, "all but what was being sent"
        assert mirror.shed["spans"] > 0


def test_one_hanging_destination_is_not_felt_by_the_others() -> None:
    with http_receiver(fault=Fault.HANG) as hanging, receiver_running("grpc") as well:
        mirror = Mirror(
            [{"endpoint": hanging.endpoint}, {"endpoint": well.endpoint, "protocol": "grpc"}], flush_at_exit_s=0
        )
        offer(mirror, *"abc")
        assert ["a", "b", "c"] == call_ids(well.wait_for(3))
        mirror.close(0.2)
        assert (3, 3) == (mirror.sent, mirror._lanes[0].queue.spans + mirror.shed["spans"])


# ---------------------------------------------------------------------- requests larger than what the receiver takes


@contextlib.contextmanager
def answering(judged: Callable[[bytes], int]) -> Iterator[tuple[str, list[Span]]]:
    """A receiver that answers each body with this status, and keeps the spans of those that it takes."""
    spans: list[Span] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status = judged(body)
            if status == 200:
                request = ExportTraceServiceRequest.FromString(body)
                spans.extend(
                    span for one in request.resource_spans for scope in one.scope_spans for span in scope.spans
                )
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", spans
        finally:
            server.shutdown()
            thread.join()


def limited(limit: int, status: int) -> contextlib.AbstractContextManager[tuple[str, list[Span]]]:
    """A receiver that takes bodies up to a limit."""
    return answering(lambda body: 200 if len(body) <= limit else status)


def breaking(word: bytes, status: int = 500) -> contextlib.AbstractContextManager[tuple[str, list[Span]]]:
    """A receiver that fails at each body with this word in it."""
    return answering(lambda body: status if word in body else 200)


def shown(spans: list[Span]) -> dict[str, tuple[bool, bool]]:
    """Of each call: whether its content came, and whether the span says that it was left out."""
    out = {}
    for span in spans:
        attributes = plain(span.attributes)
        out[attributes["otel_gym.model_call.id"]] = (
            names.INPUT_MESSAGES in attributes,
            names.SHED_CONTENT_BYTES in attributes,
        )
    return out


@pytest.mark.parametrize("status", [413, 400])
def test_a_body_limit_costs_the_large_span_its_content_and_the_others_nothing(status: int) -> None:
    with limited(200_000, status) as (endpoint, spans), mirror_to(endpoint, "http/protobuf", content=True) as mirror:
        for call in range(12):
            size = 500_000 if call == 5 else 30_000
            mirror.offer(ended_with({names.INPUT_MESSAGES: message("x" * size)}, str(call)), RECEIPT)
        assert mirror.flush(20)
        assert {str(call): (call != 5, call == 5) for call in range(12)} == shown(spans)
        assert (12, 1, 0) == (len(spans), mirror.shed["content"], mirror.shed["spans"])


def test_a_receiver_that_never_takes_a_span_is_not_asked_for_ever() -> None:
    with limited(10, 413) as (endpoint, spans), mirror_to(endpoint, "http/protobuf", content=True) as mirror:
        mirror.offer(ended_with({names.INPUT_MESSAGES: message("hello")}, "a"), RECEIPT)
        offer(mirror, "b")
        assert mirror.flush(20)
        assert ([], 2, 1) == (spans, mirror.shed["spans"], mirror.shed["content"])


@pytest.mark.parametrize(("protocol", "large"), [("grpc", 5_000_000), ("http", 30_000_000)])
def test_one_oversized_span_goes_without_content_and_its_neighbours_whole(protocol: Protocol, large: int) -> None:
    with (
        receiver_running(protocol) as receiver,
        mirror_to(receiver.endpoint, receiver.exporter_protocol, content=True) as mirror,
    ):
        for call in range(21):
            size = large if call == 10 else 1000
            mirror.offer(ended_with({names.INPUT_MESSAGES: message("x" * size)}, str(call)), RECEIPT)
        assert mirror.flush(20)
        assert {str(call): (call != 10, call == 10) for call in range(21)} == shown(receiver.spans)
        assert all(request.taken for request in receiver.requests)
        assert (21, 1, 0) == (mirror.sent, mirror.shed["content"], mirror.shed["spans"])


def test_batches_are_cut_by_bytes_below_what_grpc_receivers_take() -> None:
    with receiver_running("grpc") as receiver, mirror_to(receiver.endpoint, "grpc", content=True) as mirror:
        for call in range(8):
            mirror.offer(ended_with({names.INPUT_MESSAGES: message("é" * 500_000)}, str(call)), RECEIPT)
        assert mirror.flush(20)
        assert {str(call): (True, False) for call in range(8)} == shown(receiver.spans)
        assert max(len(request.wire) for request in receiver.requests) < 4 * 1024 * 1024


@both_protocols
def test_a_receiver_that_takes_nothing_for_a_while_is_well_again(protocol: Protocol) -> None:
    with (
        receiver_running(protocol, fault=Fault.TOO_LARGE) as receiver,
        mirror_to(receiver.endpoint, receiver.exporter_protocol) as mirror,
    ):
        offer(mirror, "a")
        assert mirror.flush(10)
        receiver.fault = None
        offer(mirror, "b")
        assert mirror.flush(10)
        assert (["b"], 1) == (call_ids(receiver.spans), mirror.shed["spans"])


def test_a_span_that_breaks_the_receiver_is_given_up_when_others_pass_and_costs_none_of_them() -> None:
    with breaking(b"poison") as (endpoint, spans), mirror_to(endpoint, "http/protobuf") as mirror:
        offer(mirror, "poison")
        for call in range(40):
            offer(mirror, str(call))
            mirror.flush(0.3)
            if mirror.shed["spans"]:
                break
        assert mirror.flush(10)
        assert 1 == mirror.shed["spans"]
        assert sorted(map(str, range(mirror.sent))) == sorted(call_ids(spans))


def test_a_receiver_that_refuses_everything_is_not_flooded() -> None:
    with breaking(b"", status=400) as (endpoint, spans), mirror_to(endpoint, "http/protobuf") as mirror:
        offer(mirror, *map(str, range(100)))
        time.sleep(0.6)
        assert ([], True) == (spans, mirror._lanes[0].queue.spans > 60)


# ---------------------------------------------------------------------- answers without end


@contextlib.contextmanager
def saying(answer: Callable[[Callable[[bytes], object]], None]) -> Iterator[str]:
    """A receiver that writes its answers itself; the endpoint."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            with contextlib.suppress(OSError):  # the other side closes
                answer(self.wfile.write)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def flooding(head: bytes) -> Callable[[Callable[[bytes], object]], None]:
    def answer(write: Callable[[bytes], object]) -> None:
        write(head)
        for _ in range(4000):  # 4 GB
            write(b"x" * 1_000_000)

    return answer


def dripping(head: bytes) -> Callable[[Callable[[bytes], object]], None]:
    def answer(write: Callable[[bytes], object]) -> None:
        write(head)
        for _ in range(1200):  # two minutes
            write(b"x")
            time.sleep(0.1)

    return answer


@pytest.mark.parametrize("without_end", [flooding, dripping])
@pytest.mark.parametrize(
    ("head", "sent"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", 1),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\nContent-Type: application/x-protobuf\r\n\r\n", 1),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", 1),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", 0),
    ],
)
def test_the_status_counts_whatever_comes_after_it(
    head: bytes, sent: int, without_end: Callable[[bytes], Callable[[Callable[[bytes], object]], None]]
) -> None:
    with saying(without_end(head)) as endpoint, mirror_to(endpoint, "http/protobuf") as mirror:
        offer(mirror, "a")
        assert mirror.flush(20)
        assert (sent, 1 - sent) == (mirror.sent, mirror.shed["spans"])


@pytest.mark.parametrize("without_end", [flooding, dripping])
@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n"]
)
def test_an_answer_that_never_ends_holds_the_others_up_for_no_longer_than_the_timeout(
    head: bytes, without_end: Callable[[bytes], Callable[[Callable[[bytes], object]], None]]
) -> None:
    asked = threading.Semaphore(0)

    def answer(write: Callable[[bytes], object]) -> None:
        asked.release()
        without_end(head)(write)

    with saying(answer) as endpoint, mirror_to(endpoint, "http/protobuf") as mirror:
        offer(mirror, "a")
        assert asked.acquire(timeout=30)
        assert asked.acquire(timeout=30), "a second try"
        assert 0 == mirror.sent


def test_a_connection_is_kept_after_an_answer_that_ends() -> None:
    connections = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            connections.append(self.client_address)
            super().setup()

        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        with mirror_to(f"http://127.0.0.1:{server.server_address[1]}", "http/protobuf") as mirror:
            for call in "abc":
                offer(mirror, call)
                assert mirror.flush(20)
        server.shutdown()
        thread.join()
    assert (3, 1) == (mirror.sent, len(connections))


# ---------------------------------------------------------------------- what is said


def test_troubles_are_said_once_an_interval_with_what_was_shed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), http_receiver(fault=Fault.RESET) as receiver:
        mirror = Mirror([{"endpoint": receiver.endpoint}], queue_spans=2, flush_at_exit_s=0)
        offer(mirror, *map(str, range(50)))
        receiver.wait_for_requests(2)
        mirror.close(0.2)
        said = [
            record.getMessage() for record in caplog.records if record.name.startswith(("otel_gym", "opentelemetry"))
        ]
    assert 3 >= len(said) > 0, said  # one on the way, one by the flush at the end, one of what was left after it
    assert f"to {receiver.endpoint}" in said[0]
    assert "lost" in said[-1]
    assert 50 == mirror.shed["spans"] + mirror._lanes[0].queue.spans


def test_what_a_flush_leaves_unsent_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with http_receiver(fault=Fault.HANG) as receiver:
        mirror = Mirror([{"endpoint": receiver.endpoint}], flush_at_exit_s=0)
        offer(mirror, *"abc")
        assert not mirror.flush(0.2)
        said = [record.getMessage() for record in caplog.records if record.name.startswith("otel_gym")]
        mirror.close(0.2)
    assert len(said) == 1
    assert "3 not sent, lost if the process ends now" in said[0]


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4318", "ftp://127.0.0.1", "collector", "http://127.0.0.1:99999"])
def test_an_endpoint_of_the_environment_that_is_no_address_is_called_one(
    endpoint: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    mirror = Mirror(flush_at_exit_s=0)
    offer(mirror, "a")
    mirror.flush(1)
    mirror.close(0.2)
    said = [record.getMessage() for record in caplog.records if record.name.startswith("otel_gym")]
    assert any("no http:// or https:// address" in one for one in said), said


ANSWERS: list[tuple[int, dict[str, str], Fate, float | None]] = [
    (200, {}, Fate.SENT, None),
    (202, {}, Fate.SENT, None),
    (302, {"Location": "http://elsewhere"}, Fate.UNUSABLE, None),
    (400, {}, Fate.BAD, None),
    (401, {}, Fate.UNUSABLE, None),
    (404, {}, Fate.UNUSABLE, None),
    (413, {}, Fate.TOO_LARGE, None),
    (429, {"Retry-After": "7"}, Fate.AGAIN, 7.0),
    (500, {}, Fate.UNCERTAIN, None),
    (502, {}, Fate.AGAIN, None),
    (503, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, Fate.AGAIN, 0.0),
    (503, {"Retry-After": "soon"}, Fate.AGAIN, None),
]


def test_each_answer_means_one_thing() -> None:
    assert [(fate, after) for _, _, fate, after in ANSWERS] == [
        (outcome.fate, outcome.after) for status, headers, _, _ in ANSWERS for outcome in [judge(status, headers, b"")]
    ]


def test_spans_that_the_receiver_threw_away_are_counted() -> None:
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 2
    assert (Fate.SENT, 2) == (
        judge(200, {}, answer.SerializeToString()).fate,
        judge(200, {}, answer.SerializeToString()).rejected,
    )
    assert [0, 0] == [judge(200, {}, body).rejected for body in (b"{}", b"\xffnonsense")]
