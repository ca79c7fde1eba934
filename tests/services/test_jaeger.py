"""Model calls of a real server in a real Jaeger: a trace for each rollout, ids as derived, attributes as specified."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from otel_gym import semconv
from tests.services.captured import PATHS, CapturedServer, captured_server, span_id
from tests.services.jaeger import Jaeger, JaegerSpan, attributes
from tests.services.rich_calls import HEADERS, RICH_CALLS, TYPES

pytestmark = pytest.mark.servers

SERVICE = "policy-server"
STREAMED, REFUSED, TRACED = range(3)  # the calls of each rollout, in this order
ROLLOUTS = {"11-0": "chat", "11-1-a2": "messages", "11-2": "responses"}
FOREIGN_TRACE, FOREIGN_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{FOREIGN_TRACE}-{FOREIGN_SPAN}-01"}
# What Jaeger makes of kind, status and scope.
JAEGERS_OWN = {
    "span.kind",
    "error",
    "otel.status_code",
    "otel.status_description",
    "otel.scope.name",
    "otel.scope.version",
}


@pytest.fixture(scope="module")
def server(jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CapturedServer]:
    """After a rollout of three calls in each dialect: one streams, one is refused, one has a trace of its own."""
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": jaeger.otlp_http,
        "OTEL_SERVICE_NAME": SERVICE,
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        "OTEL_GYM_MODEL_SERVER_NAME": "policy",
    }
    with captured_server(tmp_path_factory.mktemp("to-jaeger"), **variables) as server:
        for rollout_id, dialect in ROLLOUTS.items():
            sampling = {"temperature": 0.5, "top_p": 1, "stream": True}
            server.call(rollout_id, dialect, headers={"x-session-id": "s1"}, query={"pause": "0.2"}, **sampling)
            server.call(rollout_id, dialect, query={"play": "refuse"}, say="not now")
            server.call(rollout_id, dialect, headers=TRACEPARENT)
        yield server


def spans(jaeger: Jaeger, server: CapturedServer, rollout_id: str) -> list[JaegerSpan]:
    return jaeger.wait_for(server.trace_id(rollout_id), 3)


def own_tags(span: JaegerSpan) -> dict[str, Any]:
    """The attributes that we sent."""
    return {name: value for name, value in span.tags.items() if name not in JAEGERS_OWN}


@pytest.mark.parametrize("rollout_id", ROLLOUTS)
def test_a_rollout_is_one_trace_with_a_span_for_each_call(
    jaeger: Jaeger, server: CapturedServer, rollout_id: str
) -> None:
    records = server.store.read(rollout_id)
    found = spans(jaeger, server, rollout_id)
    assert [span_id(record) for record in records] == [span.span_id for span in found]
    assert [("chat m", SERVICE, None, ())] * 3 == [
        (span.name, span.service, span.parent_id, span.warnings) for span in found
    ]
    assert ["server"] * 3 == [span.tags["span.kind"] for span in found]
    assert ["test"] * 3 == [span.resource["deployment.environment.name"] for span in found]


@pytest.mark.parametrize(("rollout_id", "dialect"), ROLLOUTS.items())
def test_a_streamed_call_has_the_attributes_of_the_table_in_their_types(
    jaeger: Jaeger, server: CapturedServer, rollout_id: str, dialect: str
) -> None:
    span, record = spans(jaeger, server, rollout_id)[STREAMED], server.record(rollout_id, STREAMED)
    line = server.line(rollout_id, STREAMED)
    expected: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.stream": True,
        "gen_ai.response.id": "c1",
        "gen_ai.response.model": "m",
        "gen_ai.response.finish_reasons": '["stop"]',
        "gen_ai.response.time_to_first_chunk": pytest.approx(record["latency_ttft_ms"] / 1000, abs=0.002),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 5,
        "openai.api.type": "chat_completions",
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": server.port,
        "url.path": "/v1/chat/completions",
        "nemo.gym.rollout.id": rollout_id,
        "otel_gym.rollout.task_index": 11,
        "otel_gym.rollout.rollout_index": 0,
        "otel_gym.model_call.id": record["model_call_id"],
        "otel_gym.dialect": dialect,
        "otel_gym.model_ref.name": "policy",
        "gen_ai.conversation.id": "s1",
        "otel_gym.client_session.id": "s1",
        "otel_gym.client.session_id": "s1",
        "otel_gym.record.durable": True,
        "otel_gym.record.file": server.store.path_for(rollout_id).name,
        "otel_gym.record.bytes": len(line),
        "otel_gym.record.sha256": hashlib.sha256(line).hexdigest(),
    }
    if dialect == "messages":
        del expected["openai.api.type"]
        expected |= {
            "gen_ai.provider.name": "anthropic",
            "gen_ai.request.max_tokens": 64,
            "gen_ai.response.id": "msg_1",
            "gen_ai.response.finish_reasons": '["end_turn"]',
            "url.path": "/v1/messages",
            "otel_gym.rollout.rollout_index": 1,
            "otel_gym.rollout.attempt": 2,
        }
    if dialect == "responses":
        expected |= {
            "openai.api.type": "responses",
            "gen_ai.response.id": "r1",
            "url.path": "/v1/responses",
            "otel_gym.rollout.rollout_index": 2,
        }
    assert expected == own_tags(span)
    kinds = {bool: "bool", int: "int64", float: "float64", str: "string"}
    assert {name: kinds[type(span.tags[name])] for name in expected if not name.endswith(("top_p", "_chunk"))} == {
        name: span.types[name] for name in expected if not name.endswith(("top_p", "_chunk"))
    }
    assert ("float64", "float64") == (
        span.types["gen_ai.request.top_p"],
        span.types["gen_ai.response.time_to_first_chunk"],
    )
    assert "error" not in span.tags


# ---- calls that say all that there is to say, with content on

RICH_ROLLOUT = "12-{}-a1"
CONTENT_JSON = {
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
}
BESIDE_THE_POINT = {"gen_ai.response.time_to_first_chunk", *CONTENT_JSON}


@pytest.fixture(scope="module")
def rich(jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CapturedServer]:
    """A captured server after a rollout of each dialect: one call is answered at once, one streams, one is refused."""
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": jaeger.otlp_http,
        "OTEL_GYM_MODEL_SERVER_NAME": "policy",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
    }
    with captured_server(tmp_path_factory.mktemp("rich"), **variables) as server:
        for number, (dialect, call) in enumerate(RICH_CALLS.items()):
            rollout_id = RICH_ROLLOUT.format(number)
            server.call(rollout_id, dialect, headers=HEADERS, answered={"usage": call.usage}, **call.request)
            server.call(rollout_id, dialect, headers=HEADERS, events=call.events(), stream=True, **call.request)
            server.call(rollout_id, dialect, query={"play": "refuse"})
        yield server


def typed(span: dict[str, Any]) -> dict[str, str]:
    """The type of each attribute of a span of OTLP's JSON."""
    return {item["key"]: next(iter(item["value"])) for item in span["attributes"]}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("number", "dialect"), list(enumerate(RICH_CALLS)))
def test_all_that_a_call_can_say_comes_back_as_it_was_said(
    jaeger: Jaeger, rich: CapturedServer, number: int, dialect: str, streamed: bool
) -> None:
    rollout_id = RICH_ROLLOUT.format(number)
    record, line = rich.record(rollout_id, int(streamed)), rich.line(rollout_id, int(streamed))
    shown = {span["spanId"]: attributes(span) for span in jaeger.otlp_when_there(rich.trace_id(rollout_id), 3)}
    said = shown[span_id(record)]
    expected = RICH_CALLS[dialect].expected | {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m",
        "gen_ai.usage.input_tokens": 70,
        "gen_ai.usage.output_tokens": 50,
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": rich.port,
        "url.path": PATHS[dialect],
        "nemo.gym.rollout.id": rollout_id,
        "otel_gym.rollout.task_index": 12,
        "otel_gym.rollout.rollout_index": number,
        "otel_gym.rollout.attempt": 1,
        "otel_gym.model_call.id": record["model_call_id"],
        "otel_gym.dialect": dialect,
        "otel_gym.model_ref.name": "policy",
        "otel_gym.client_session.id": "s1",
        "otel_gym.client.session_id": "s2",
        "otel_gym.client.agent_id": "t1",
        "otel_gym.client.parent_id": "t0",
        "otel_gym.client.retry_count": 1,
        "otel_gym.record.durable": True,
        "otel_gym.record.file": rich.store.path_for(rollout_id).name,
        "otel_gym.record.bytes": len(line),
        "otel_gym.record.sha256": hashlib.sha256(line).hexdigest(),
    }
    if streamed:
        expected["gen_ai.request.stream"] = True
    assert expected == {name: value for name, value in said.items() if name not in BESIDE_THE_POINT}
    assert streamed == ("gen_ai.response.time_to_first_chunk" in said)
    read = {name: json.loads(said[name]) for name in CONTENT_JSON if name in said}
    assert ("hi", "hello") == (
        read["gen_ai.input.messages"][-1]["parts"][0]["content"],
        read["gen_ai.output.messages"][0]["parts"][0]["content"],
    )
    assert "population" == read["gen_ai.tool.definitions"][0]["name"]


def test_every_attribute_of_the_table_is_read_back_in_the_type_that_it_has_there(
    jaeger: Jaeger, rich: CapturedServer
) -> None:
    """All but the one for content that was shed, which the tests of a Collector's limits see."""
    expected = dict.fromkeys(semconv.SPAN_ATTRIBUTES, "stringValue")
    expected |= {name: kind for kind, names in TYPES.items() for name in names}
    assert list(semconv.SPAN_ATTRIBUTES) == list(expected), "a type is given for a name that is in no table"
    traces = [rich.trace_id(RICH_ROLLOUT.format(number)) for number in range(len(RICH_CALLS))]
    found = [typed(span) for trace in traces for span in jaeger.otlp_when_there(trace, 3)]
    assert [] == [kinds for kinds in found if kinds != {name: expected[name] for name in kinds}]
    assert {"otel_gym.mirror.shed_content_bytes"} == set(expected) - {name for kinds in found for name in kinds}
    own = {"stringValue": "string", "intValue": "int64", "doubleValue": "float64", "boolValue": "bool"}
    for span in (span for trace in traces for span in jaeger.wait_for(trace, 3)):
        shown = {name: kind for name, kind in span.types.items() if name not in JAEGERS_OWN}
        assert {name: own.get(expected[name], "string") for name in shown} == shown


# ---- calls that fail, and calls with a trace of their own


@pytest.mark.parametrize("rollout_id", ROLLOUTS)
def test_a_refused_call_is_an_error_that_says_its_category_and_no_more(
    jaeger: Jaeger, server: CapturedServer, rollout_id: str
) -> None:
    span, record = spans(jaeger, server, rollout_id)[REFUSED], server.record(rollout_id, REFUSED)
    category = record["error_category"]
    assert category is not None
    assert (True, "ERROR", category, 429) == (
        span.tags["error"],
        span.tags["otel.status_code"],
        span.tags["error.type"],
        span.tags["http.response.status_code"],
    )
    assert category == span.tags.get("otel.status_description", category)
    assert "not now" not in str(span)
    assert not {"gen_ai.usage.input_tokens", "gen_ai.response.finish_reasons"} & set(span.tags)


@pytest.mark.parametrize("rollout_id", ROLLOUTS)
def test_a_call_with_a_trace_of_its_own_stays_in_the_rollout_and_links_there(
    jaeger: Jaeger, server: CapturedServer, rollout_id: str
) -> None:
    linked = [span.links for span in spans(jaeger, server, rollout_id)]
    assert [(), (), ((FOREIGN_TRACE, FOREIGN_SPAN),)] == linked
    given = {item["spanId"]: item for item in jaeger.otlp(server.trace_id(rollout_id))}
    (link,) = given[span_id(server.record(rollout_id, TRACED))]["links"]
    assert (FOREIGN_TRACE, FOREIGN_SPAN) == (link["traceId"], link["spanId"])


@pytest.mark.parametrize("rollout_id", ROLLOUTS)
def test_a_span_lasts_as_long_as_its_record_says(jaeger: Jaeger, server: CapturedServer, rollout_id: str) -> None:
    for span, record in zip(spans(jaeger, server, rollout_id), server.store.read(rollout_id), strict=True):
        assert pytest.approx(record["started_at"], abs=0.002) == span.start_us / 1e6
        assert pytest.approx(record["latency_ms"], abs=2) == span.duration_us / 1000
    # A loop counts its timers from where its iteration began, and so ends them a little early.
    assert server.record(rollout_id, STREAMED)["latency_ms"] >= 190


@pytest.mark.parametrize("rollout_id", ROLLOUTS)
def test_a_rollout_and_each_call_are_found_by_their_ids(
    jaeger: Jaeger, server: CapturedServer, rollout_id: str
) -> None:
    trace = {server.trace_id(rollout_id)}
    spans(jaeger, server, rollout_id)
    assert trace == jaeger.find(SERVICE, {"nemo.gym.rollout.id": rollout_id})
    for record in server.store.read(rollout_id):
        assert trace == jaeger.find(SERVICE, {"otel_gym.model_call.id": record["model_call_id"]})


# A parent and two sub-agents that run beside it, as each harness names them, and an SDK's second try.
AGENTS: dict[str, list[dict[str, str]]] = {
    "codex": [
        {"session-id": "main", "thread-id": "main"},
        {"session-id": "main", "thread-id": "t1", "x-codex-parent-thread-id": "main"},
        {"session-id": "main", "thread-id": "t2", "x-codex-parent-thread-id": "main"},
    ],
    "claude code": [
        {"x-claude-code-session-id": "main"},
        {"x-claude-code-session-id": "main", "x-claude-code-agent-id": "a1"},
        {"x-claude-code-session-id": "main", "x-claude-code-agent-id": "a2"},
    ],
    "opencode": [
        {"x-session-id": "main"},
        {"x-session-id": "s1", "x-parent-session-id": "main"},
        {"x-session-id": "s2", "x-parent-session-id": "main"},
    ],
    "an sdk": [{"x-stainless-retry-count": "0"}, {"x-stainless-retry-count": "1"}, {"x-stainless-retry-count": "2"}],
}
SAID = {name: f"otel_gym.client.{name}" for name in ("session_id", "agent_id", "parent_id", "retry_count")}
TOLD: dict[str, list[dict[str, Any]]] = {
    "codex": [
        {"session_id": "main", "agent_id": "main"},
        {"session_id": "main", "agent_id": "t1", "parent_id": "main"},
        {"session_id": "main", "agent_id": "t2", "parent_id": "main"},
    ],
    "claude code": [
        {"session_id": "main"},
        {"session_id": "main", "agent_id": "a1"},
        {"session_id": "main", "agent_id": "a2"},
    ],
    "opencode": [
        {"session_id": "main"},
        {"session_id": "s1", "parent_id": "main"},
        {"session_id": "s2", "parent_id": "main"},
    ],
    "an sdk": [{"retry_count": 0}, {"retry_count": 1}, {"retry_count": 2}],
}


@pytest.mark.parametrize("harness", AGENTS)
def test_agents_beside_each_other_in_one_rollout_are_told_apart_by_what_they_say_of_themselves(
    jaeger: Jaeger, server: CapturedServer, harness: str
) -> None:
    """Twice each, in turns: every call stands in the rollout's trace, and is found by what its agent said."""
    rollout_id = f"agents-of-{harness.replace(' ', '-')}"
    for headers in AGENTS[harness] * 2:
        server.call(rollout_id, headers=headers)
    found = {span.span_id: span for span in jaeger.wait_for(server.trace_id(rollout_id), 6)}
    in_turn = [found[span_id(record)] for record in server.store.read(rollout_id)]
    shown = [
        {name: span.tags[attribute] for name, attribute in SAID.items() if attribute in span.tags} for span in in_turn
    ]
    assert TOLD[harness] * 2 == shown
    for told in TOLD[harness]:
        asked = {SAID[name]: str(value) for name, value in told.items()}
        assert {server.trace_id(rollout_id)} == jaeger.find(SERVICE, {"nemo.gym.rollout.id": rollout_id, **asked})
    assert set() == jaeger.find(SERVICE, {"nemo.gym.rollout.id": rollout_id, SAID["agent_id"]: "nobody"})


def test_a_call_that_is_to_join_its_callers_trace_is_a_child_there(
    jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory
) -> None:
    trace, parent = "1b" * 16, "2c" * 8
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": jaeger.otlp_grpc, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    with captured_server(
        tmp_path_factory.mktemp("child"), OTEL_GYM_FOREIGN_TRACE="parent", OTEL_GYM_RUN_ID="r", **variables
    ) as server:
        server.call("0-0", headers={"traceparent": f"00-{trace}-{parent}-01"})
        record = server.record("0-0")
        (span,) = jaeger.otlp_when_there(trace)
    assert (parent, span_id(record)) == (span["parentSpanId"], span["spanId"])


def test_two_servers_of_one_run_give_a_rollout_one_trace(
    jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The agent's calls go to a policy and to a judge: their directories differ, the run is the same."""
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": jaeger.otlp_http, "OTEL_GYM_RUN_ID": "tonight"}
    trace = hashlib.sha256(b"otel-gym/v1\0tonight\x005-5").hexdigest()[:32]
    for name in ("policy", "judge"):
        with captured_server(tmp_path_factory.mktemp(name), OTEL_SERVICE_NAME=name, **variables) as server:
            server.call("5-5")
    assert ["policy", "judge"] == [span.service for span in jaeger.wait_for(trace, 2)]
