"""The names on the wire, literally: whoever changes one changes what other people's dashboards ask for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from otel_gym import callers, semconv
from otel_gym_jsonl import attributes

ROOT = Path(__file__).resolve().parent.parent

SPAN_ATTRIBUTES = [
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.request.temperature",
    "gen_ai.request.top_p",
    "gen_ai.request.top_k",
    "gen_ai.request.max_tokens",
    "gen_ai.request.frequency_penalty",
    "gen_ai.request.presence_penalty",
    "gen_ai.request.seed",
    "gen_ai.request.choice.count",
    "gen_ai.request.stream",
    "gen_ai.request.reasoning.level",
    "gen_ai.request.previous_response.id",
    "gen_ai.conversation.id",
    "gen_ai.response.id",
    "gen_ai.response.model",
    "gen_ai.response.finish_reasons",
    "gen_ai.response.time_to_first_chunk",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.usage.reasoning.output_tokens",
    "openai.api.type",
    "http.request.method",
    "http.response.status_code",
    "server.address",
    "server.port",
    "url.path",
    "error.type",
    "nemo.gym.rollout.id",
    "otel_gym.rollout.task_index",
    "otel_gym.rollout.rollout_index",
    "otel_gym.rollout.attempt",
    "otel_gym.model_call.id",
    "otel_gym.dialect",
    "otel_gym.model_ref.name",
    "otel_gym.client_session.id",
    "otel_gym.client.session_id",
    "otel_gym.client.agent_id",
    "otel_gym.client.parent_id",
    "otel_gym.client.retry_count",
    "otel_gym.record.durable",
    "otel_gym.record.file",
    "otel_gym.record.bytes",
    "otel_gym.record.sha256",
    "otel_gym.mirror.shed_content_bytes",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
    "gen_ai.request.stop_sequences",
]

ROLLOUT_ATTRIBUTES = [
    "gen_ai.operation.name",
    "nemo.gym.rollout.id",
    "otel_gym.rollout.task_index",
    "otel_gym.rollout.rollout_index",
    "otel_gym.rollout.attempt",
    "error.type",
    "gen_ai.agent.name",
    "gen_ai.agent.id",
    "gen_ai.tool.name",
    "gen_ai.tool.call.id",
    "otel_gym.observed.status",
    "otel_gym.observed.times",
    "otel_gym.compaction.trigger",
    "otel_gym.compaction.outcome",
    "otel_gym.compaction.tokens_before",
    "otel_gym.compaction.tokens_after",
]
OPERATIONS = {"chat", "invoke_agent", "execute_tool", "compact_context"}
EVENTS = {"gen_ai.evaluation.result"}

PROFILE_ATTRIBUTES = [
    "session.id",
    "gen_ai.usage.cache_creation.input_tokens",
    "openinference.span.kind",
    "llm.token_count.prompt",
    "llm.token_count.completion",
    "llm.token_count.total",
    "llm.token_count.prompt_details.cache_read",
    "llm.token_count.prompt_details.cache_write",
    "llm.token_count.completion_details.reasoning",
]

METRICS = {
    "gen_ai.server.request.duration": ("histogram", "s"),
    "gen_ai.server.time_to_first_token": ("histogram", "s"),
    "gen_ai.server.time_per_output_token": ("histogram", "s"),
    "otel_gym.model_calls": ("counter", "{call}"),
    "otel_gym.unattributed_calls": ("counter", "{call}"),
    "otel_gym.capture.duration": ("histogram", "s"),
    "otel_gym.records.written": ("counter", "By"),
    "otel_gym.records.lost": ("counter", "{record}"),
    "otel_gym.mirror.shed": ("counter", "{span}"),
}

METRIC_ATTRIBUTES = [
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "server.address",
    "server.port",
    "error.type",
    "network.peer.address",
    "otel_gym.mirror.shed.what",
]


def constants() -> set[str]:
    """Every name that the module gives a constant."""
    found = {value for name, value in vars(semconv).items() if name.isupper() and isinstance(value, str)}
    return found - OPERATIONS - EVENTS


def test_the_names_of_span_attributes_do_not_change() -> None:
    assert SPAN_ATTRIBUTES == list(semconv.SPAN_ATTRIBUTES)


def test_the_names_on_the_spans_of_a_rollout_do_not_change() -> None:
    assert ROLLOUT_ATTRIBUTES == list(semconv.ROLLOUT_ATTRIBUTES)
    assert ["gen_ai.evaluation.name", "gen_ai.evaluation.score.value"] == list(semconv.EVALUATION_ATTRIBUTES)
    operations = {semconv.CHAT, semconv.INVOKE_AGENT, semconv.EXECUTE_TOOL, semconv.COMPACT_CONTEXT}
    assert (OPERATIONS, EVENTS) == (operations, {semconv.EVALUATION_RESULT})


def test_the_names_that_profiles_add_do_not_change() -> None:
    assert PROFILE_ATTRIBUTES == list(semconv.PROFILE_ATTRIBUTES)


def test_the_names_of_metrics_their_instruments_and_units_do_not_change() -> None:
    assert METRICS == {name: (metric.kind, metric.unit) for name, metric in semconv.METRICS.items()}


def test_the_names_of_metric_attributes_do_not_change() -> None:
    assert METRIC_ATTRIBUTES == list(semconv.METRIC_ATTRIBUTES)


def test_every_constant_stands_in_a_table_and_every_row_has_a_constant() -> None:
    tables = (
        semconv.SPAN_ATTRIBUTES,
        semconv.ROLLOUT_ATTRIBUTES,
        semconv.EVALUATION_ATTRIBUTES,
        semconv.PROFILE_ATTRIBUTES,
        semconv.METRICS,
        semconv.METRIC_ATTRIBUTES,
    )
    assert {name for table in tables for name in table} == constants()


def test_every_name_is_explained_in_one_line() -> None:
    meanings = [
        *semconv.SPAN_ATTRIBUTES.values(),
        *semconv.ROLLOUT_ATTRIBUTES.values(),
        *semconv.EVALUATION_ATTRIBUTES.values(),
        *semconv.PROFILE_ATTRIBUTES.values(),
        *semconv.METRIC_ATTRIBUTES.values(),
        *(metric.description for metric in semconv.METRICS.values()),
    ]
    assert [] == [text for text in meanings if not text.endswith(".") or "\n" in text or "|" in text]


def test_a_rollout_a_session_or_a_call_is_no_metric_attribute() -> None:
    assert [] == [name for name in semconv.METRIC_ATTRIBUTES if name.endswith(("_id", ".id", "_index"))]


def test_no_span_attribute_is_an_evidence_attribute() -> None:
    assert [] == [name for name in semconv.SPAN_ATTRIBUTES if name.startswith(attributes.PREFIX)]


def test_the_request_duration_has_the_standard_buckets_and_goes_on_to_more_than_an_hour() -> None:
    boundaries = semconv.METRICS[semconv.REQUEST_DURATION].boundaries
    standard = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
    assert standard == boundaries[:14]
    assert boundaries[-1] > 3600


@pytest.mark.parametrize("name", [name for name, metric in semconv.METRICS.items() if metric.kind == "histogram"])
def test_the_buckets_of_a_histogram_rise(name: str) -> None:
    boundaries = semconv.METRICS[name].boundaries
    assert sorted(set(boundaries)) == list(boundaries)
    assert boundaries


def test_what_callers_say_has_names_in_the_table() -> None:
    assert (set(), set()) == (
        set(callers.CALLERS.values()) - set(semconv.SPAN_ATTRIBUTES),
        {name for name in semconv.SPAN_ATTRIBUTES if name.startswith("otel_gym.client.")}
        - set(callers.CALLERS.values()),
    )


def test_the_differences_of_what_was_emitted_go_in_both_directions() -> None:
    assert ({"c"}, {"b"}) == semconv.differences(["a", "c", "a"], {"a": "", "b": ""})


def test_the_page_of_the_documentation_is_what_its_generator_makes_of_the_code_today() -> None:
    made = subprocess.run(
        [sys.executable, str(ROOT / "docs/make_spans_page.py")],
        capture_output=True,
        text=True,
        check=True,
        encoding="utf-8",
    )
    assert (ROOT / "docs/spans.md").read_text("utf-8") == made.stdout, "run 'python docs/make_spans_page.py --write'"
