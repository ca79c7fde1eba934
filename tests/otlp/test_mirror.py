"""What of a span arrives where, through real receivers over HTTP and gRPC."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags, TraceState

from otel_gym import semconv
from otel_gym_otlp import Destination, Mirror, Receipt
from otel_gym_otlp import attributes as names
from otel_gym_otlp.limits import of_limits
from tests.otlp.spans import RECEIPT, call_ids, ended, ended_with, light_copy, message
from tests.services.receiver import Protocol, Receiver, http_receiver, plain, receiver_running

both_protocols = pytest.mark.parametrize("protocol", ["http", "grpc"])


@pytest.fixture(params=["http", "grpc"])
def receiver(request: pytest.FixtureRequest) -> Iterator[Receiver]:
    protocol: Protocol = request.param
    with receiver_running(protocol) as running:
        yield running


def to(receiver: Receiver, **entry: Any) -> dict[str, Any]:
    return {"endpoint": receiver.endpoint, "protocol": receiver.exporter_protocol, **entry}


def sent_by(mirror: Mirror) -> None:
    assert mirror.close(10)


def only(receiver: Receiver) -> dict[str, Any]:
    """Attributes of the only span that came."""
    (span,) = receiver.spans
    return plain(span.attributes)


def test_a_span_arrives_as_it_was_with_its_record_named_and_without_evidence(receiver: Receiver) -> None:
    mirror = Mirror([to(receiver)])
    mirror.offer(
        ended("7", error="timeout", gen_ai__usage__input_tokens=9, gen_ai__response__finish_reasons=["stop"]), RECEIPT
    )
    sent_by(mirror)
    (span,) = receiver.spans
    assert ("chat m", 2, 1_700_000_000_000_000_000, 1_700_000_001_000_000_000) == (
        span.name,
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
    )
    assert (2, "timeout") == (span.status.code, span.status.message)
    assert {
        "otel_gym.record.durable": True,
        "otel_gym.record.file": "r0.capture.jsonl",
        "otel_gym.record.bytes": 1234,
        "otel_gym.record.sha256": "ab" * 32,
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "otel_gym.model_call.id": "7",
        "gen_ai.usage.input_tokens": 9,
        "gen_ai.response.finish_reasons": ["stop"],
        "error.type": "timeout",
    } == plain(span.attributes)
    assert b"evidence" not in receiver.requests[0].everything()


def test_a_record_that_could_not_be_written_is_said_not_to_be_durable(receiver: Receiver) -> None:
    mirror = Mirror([to(receiver)])
    mirror.offer(ended(), Receipt(durable=False))
    sent_by(mirror)
    record = {name: value for name, value in only(receiver).items() if name.startswith("otel_gym.record.")}
    assert {"otel_gym.record.durable": False} == record


def test_spans_are_sent_without_anybody_asking(receiver: Receiver) -> None:
    mirror = Mirror([to(receiver)])
    for call in range(40):
        mirror.offer(ended(str(call)), RECEIPT)
    assert [str(call) for call in range(40)] == sorted(call_ids(receiver.wait_for(40)), key=int)
    mirror.close(5)


def test_a_closed_mirror_starts_anew_with_the_next_span(receiver: Receiver) -> None:
    mirror = Mirror([to(receiver)])
    for call in "abc":
        mirror.offer(ended(call), RECEIPT)
        sent_by(mirror)
    assert ["a", "b", "c"] == call_ids(receiver.spans)
    assert (3, {}, 0) == (mirror.sent, dict(mirror.shed), mirror.queued_bytes)


def test_headers_of_a_destination_go_there_and_those_of_the_variables_do_not(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20of-another-backend")
    mirror = Mirror([to(receiver, headers={"X-Key": "k1"})])
    mirror.offer(ended(), RECEIPT)
    sent_by(mirror)
    headers = dict(receiver.requests[0].headers)
    assert ("k1", None) == (headers["x-key"], headers.get("authorization"))
    assert b"of-another-backend" not in receiver.requests[0].everything()


@both_protocols
def test_the_standard_variables_say_where_how_and_as_whom(protocol: Protocol, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver_running(protocol) as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", receiver.exporter_protocol)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=k2")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "model-server")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        mirror = Mirror(default_service_name="not this one")
        assert mirror.wanted()
        mirror.offer(ended("1"), RECEIPT)
        sent_by(mirror)
        (request,) = receiver.requests
        resource = plain(request.message.resource_spans[0].resource.attributes)
        assert ("model-server", "test") == (resource["service.name"], resource["deployment.environment.name"])
        assert ["1"] == call_ids(request.spans)
        assert "k2" == dict(request.headers)["x-key"]
        scope = request.message.resource_spans[0].scope_spans[0].scope
        assert ("otel_gym", "0.1.0") == (scope.name, scope.version)


def test_the_service_has_a_default_name_where_nobody_names_it(receiver: Receiver) -> None:
    mirror = Mirror([to(receiver)], default_service_name="otel-gym")
    mirror.offer(ended(), RECEIPT)
    sent_by(mirror)
    assert "otel-gym" == plain(receiver.requests[0].message.resource_spans[0].resource.attributes)["service.name"]


def test_without_any_word_nothing_is_sent_nor_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for silence in ({}, {"OTEL_TRACES_EXPORTER": "none"}):
        for name, value in silence.items():
            monkeypatch.setenv(name, value)
        mirror = Mirror(unasked="OTEL_TRACES_EXPORTER" in silence)
        mirror.offer(ended(), RECEIPT)
        assert (False, False, 0) == (mirror.wanted(), mirror.wants_content(), mirror.queued_bytes)


def test_a_disabled_sdk_sends_nothing(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    mirror = Mirror([to(receiver)])
    mirror.offer(ended(), RECEIPT)
    sent_by(mirror)
    assert (False, []) == (mirror.wanted(), receiver.requests)


# ---------------------------------------------------------------------- content


CONTENT: list[tuple[str | None, bool | None, bool]] = [
    (None, None, False),
    ("NO_CONTENT", None, False),
    ("true", None, False),
    ("SPAN_ONLY", None, True),
    ("event_only", None, True),
    ("SPAN_AND_EVENT", None, True),
    ("SPAN_ONLY", False, False),
    (None, True, True),
]


@pytest.mark.parametrize(("variable", "own", "goes"), CONTENT)
def test_content_goes_only_where_the_variable_or_the_destination_wants_it(
    variable: str | None, own: bool | None, goes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", variable)
    with http_receiver() as receiver:
        mirror = Mirror([to(receiver, content=own)])
        assert goes == mirror.wants_content()
        mirror.offer(ended_with({names.INPUT_MESSAGES: message("hello"), names.STOP_SEQUENCES: ["hello"]}), RECEIPT)
        sent_by(mirror)
        sent = only(receiver)
        assert ([message("hello"), ["hello"]] if goes else [None, None]) == [
            sent.get(names.INPUT_MESSAGES),
            sent.get(names.STOP_SEQUENCES),
        ]


def test_each_destination_has_its_own_policy_and_profile() -> None:
    span = ended_with(
        {
            names.INPUT_MESSAGES: message("hello"),
            names.INPUT_TOKENS: 9,
            names.OUTPUT_TOKENS: 3,
            names.CACHE_WRITE_TOKENS: 2,
            names.CLIENT_SESSION_ID: "s1",
        }
    )
    with http_receiver() as plain_one, http_receiver() as phoenix, receiver_running("grpc") as langfuse:
        mirror = Mirror([to(plain_one), to(phoenix, profile="phoenix", content=True), to(langfuse, profile="langfuse")])
        mirror.offer(span, RECEIPT)
        sent_by(mirror)
        default = only(plain_one)
        added = {name: value for name, value in only(phoenix).items() if name not in default}
        assert {
            names.INPUT_MESSAGES: message("hello"),
            "openinference.span.kind": "LLM",
            "llm.token_count.prompt": 9,
            "llm.token_count.completion": 3,
            "llm.token_count.total": 12,
            "llm.token_count.prompt_details.cache_write": 2,
            "session.id": "s1",
        } == added
        others = {name: value for name, value in only(langfuse).items() if default.get(name) != value}
        assert {"session.id": "s1", "gen_ai.usage.cache_creation.input_tokens": 2} == others
        assert names.CACHE_WRITE_TOKENS not in only(langfuse)
    assert 3 == mirror.sent


RICH = {
    names.INPUT_TOKENS: 9,
    names.OUTPUT_TOKENS: 3,
    names.CACHE_READ_TOKENS: 4,
    names.CACHE_WRITE_TOKENS: 2,
    names.REASONING_TOKENS: 1,
    names.CONVERSATION_ID: "c1",
}


def test_profiles_add_the_names_of_the_table_and_no_others() -> None:
    """The table is part of `otel_gym`, which the mirror knows nothing of."""
    added = set()
    with http_receiver() as default, http_receiver() as phoenix, http_receiver() as langfuse:
        mirror = Mirror([to(default), to(phoenix, profile="phoenix"), to(langfuse, profile="langfuse")])
        mirror.offer(ended_with(RICH), RECEIPT)
        sent_by(mirror)
        for one in (phoenix, langfuse):
            added |= set(only(one)) - set(only(default))
    assert set(semconv.PROFILE_ATTRIBUTES) == added


def test_what_a_pattern_matches_is_taken_out_of_content_only() -> None:
    arguments = json.dumps({"pass": 'k-1"23', "k-777": 1})
    parts = [
        {"type": "text", "content": "key k-123, kéy"},
        {"type": "tool_call", "name": "f", "arguments": json.loads(arguments)},
    ]
    with http_receiver() as receiver:
        mirror = Mirror([to(receiver, content=True)], redact_patterns=[r'k-[\d"]+', "user|text"])
        mirror.offer(
            ended_with(
                {
                    names.INPUT_MESSAGES: json.dumps([{"role": "user", "parts": parts}]),
                    names.SYSTEM_INSTRUCTIONS: "no JSON: k-9",
                    names.STOP_SEQUENCES: ["k-5", "end"],
                    "gen_ai.response.id": "k-55",
                }
            ),
            RECEIPT,
        )
        sent_by(mirror)
        sent = only(receiver)
    (said,) = json.loads(sent[names.INPUT_MESSAGES])
    assert [
        {"type": "text", "content": "key [redacted], kéy"},
        {"type": "tool_call", "name": "f", "arguments": {"pass": "[redacted]", "[redacted]": 1}},
    ] == said["parts"]
    assert ("user", "no JSON: [redacted]", ["[redacted]", "end"], "k-55") == (
        said["role"],
        sent[names.SYSTEM_INSTRUCTIONS],
        sent[names.STOP_SEQUENCES],
        sent["gen_ai.response.id"],
    )


def test_one_span_that_cannot_be_encoded_never_costs_its_neighbours(receiver: Receiver) -> None:
    mirror = Mirror([to(receiver, content=True)])
    mirror.offer(ended("1"), RECEIPT)
    odd = ended("2")
    odd._attributes = {  # SDKs differ in what they let through
        names.OUTPUT_MESSAGES: '["\ud83d\ude80 \ud83d"]',
        "big": 2**70,
        "b": b"\xff",
        "otel_gym.model_call.id": "2",
    }
    mirror.offer(odd, RECEIPT)
    broken = ended("3")
    broken._start_time = -1  # what no protocol can say
    mirror.offer(broken, RECEIPT)
    mirror.offer(ended("4"), RECEIPT)
    sent_by(mirror)
    assert ["1", "2", "4"] == call_ids(receiver.spans)
    came = plain(receiver.spans[1].attributes)
    assert ('["🚀 \ufffd"]', str(2**70), "\ufffd") == (came[names.OUTPUT_MESSAGES], came["big"], came["b"])
    assert {"spans": 1} == dict(mirror.shed)


# ---------------------------------------------------------------------- limits


@pytest.mark.usefixtures("limits_read_anew")
def test_limits_of_the_user_keep_scalars_and_let_content_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    attributes = {names.INPUT_MESSAGES: message("x" * 50), **{f"a{n}": "y" * 50 for n in range(200)}}
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "20")
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "10")
    with http_receiver() as receiver:
        mirror = Mirror([to(receiver, content=True)])
        mirror.offer(ended_with(attributes), RECEIPT)
        sent_by(mirror)
        sent = only(receiver)
    assert [*RECORD, "gen_ai.operation.name", "gen_ai.request.model", "otel_gym.model_call.id"] == list(sent)[:7]
    assert (20, "y" * 10, False) == (len(sent), sent["a0"], names.INPUT_MESSAGES in sent)


RECORD = (names.RECORD_DURABLE, names.RECORD_FILE, names.RECORD_BYTES, names.RECORD_SHA256)


def test_a_span_never_has_more_than_128_attributes() -> None:
    assert (128, None) == of_limits(SpanLimits(max_span_attributes=1000))
    assert (128, None) == of_limits(SpanLimits(max_span_attributes=SpanLimits.UNSET))


def test_the_copy_holds_ids_of_spans_and_nothing_of_what_vendors_say_in_their_trace_state() -> None:
    said = TraceState([("vendor", "anything")])
    caller = SpanContext(1, 2, True, TraceFlags(1), said)
    context = trace.set_span_in_context(NonRecordingSpan(caller))
    with TracerProvider(shutdown_on_exit=False).get_tracer("t").start_span("s", context, links=[Link(caller)]) as span:
        assert isinstance(span, ReadableSpan)
        assert said == span.get_span_context().trace_state
        copy, _ = light_copy(span)
    assert [1, 1] == [copy.context.trace_id, copy.links[0][0].trace_id]
    assert [{}, {}] == [dict(copy.context.trace_state), dict(copy.links[0][0].trace_state)]


def test_the_copy_holds_nothing_of_the_evidence_and_knows_its_size() -> None:
    copy, content = light_copy(
        ended_with({"otel_gym.evidence.response": "x" * 10**6, names.INPUT_MESSAGES: "y" * 10**6})
    )
    assert [names.INPUT_MESSAGES] == list(content)
    assert copy.size < 10_000
    assert not [name for name in copy.attributes if name.startswith("otel_gym.evidence.")]


# ---------------------------------------------------------------------- destinations


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "endpoint is missing"),
    ({"endpoint": "localhost:4318"}, "begins with http"),
    ({"endpoint": None}, "begins with http"),
    ({"endpoint": "http://h", "protocol": "http/json"}, "http/protobuf, grpc"),
    ({"endpoint": "http://h", "profile": "jaeger"}, "default, phoenix, langfuse"),
    ({"endpoint": "http://h", "headers": {"a": 1}}, "name → text"),
    ({"endpoint": "http://h", "content": "yes"}, "true, false"),
    ({"endpoint": "http://h", "insecure": True}, "no insecure there"),
]


@pytest.mark.parametrize(("entry", "says"), WRONG)
def test_a_destination_that_cannot_be_used_says_what_is_allowed(entry: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Mirror([entry])


def test_a_pattern_that_is_none_is_said_at_once() -> None:
    with pytest.raises(ValueError, match="no regular expression"):
        Mirror([], redact_patterns=["("])


def test_a_password_in_an_endpoint_is_not_for_the_log() -> None:
    assert "https://h:1/x" == Destination("https://user:secret@h:1/x?key=secret").name


def test_a_missing_exporter_is_one_line_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    monkeypatch.setitem(sys.modules, module, None)
    with caplog.at_level(logging.ERROR):
        mirror = Mirror([{"endpoint": "http://127.0.0.1:1"}])
        for call in "ab":
            mirror.offer(ended(call), RECEIPT)
            mirror.flush(5)
        mirror.close(1)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert "pip install 'otel-gym[otlp]'" in line
    assert not mirror.wanted()


def test_importing_the_mirror_loads_no_exporter() -> None:
    code = "import sys, otel_gym_otlp.mirror; print(sorted({'grpc', 'requests', 'google.protobuf'} & set(sys.modules)))"
    assert "[]\n" == subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
