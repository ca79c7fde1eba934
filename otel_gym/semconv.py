"""Every name that otel-gym puts on spans, events and metrics, each with one line that says what it means.

The names of the GenAI semantic conventions are those of semantic-conventions-genai v0.1.0 (status: development); the
constants that PyPI has for them are deprecated and incomplete. `docs/spans.md` is made of the tables here. The evidence
attributes, which never leave the process, have a table of their own: `otel_gym_jsonl.attributes`.
Source: the project's trace specification.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

AttributeValue: TypeAlias = "str | int | float | bool | tuple[str, ...]"
"""What an attribute holds; a list of strings is a tuple, as in the SDK."""

LONGEST_SEARCHED: Final = 255
"""Characters of a string that one searches for: backends index less than 256."""

# ---------------------------------------------------------------------- request
OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_TOP_P: Final = "gen_ai.request.top_p"
REQUEST_TOP_K: Final = "gen_ai.request.top_k"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_FREQUENCY_PENALTY: Final = "gen_ai.request.frequency_penalty"
REQUEST_PRESENCE_PENALTY: Final = "gen_ai.request.presence_penalty"
REQUEST_SEED: Final = "gen_ai.request.seed"
REQUEST_CHOICE_COUNT: Final = "gen_ai.request.choice.count"
REQUEST_STREAM: Final = "gen_ai.request.stream"
REQUEST_REASONING_LEVEL: Final = "gen_ai.request.reasoning.level"
REQUEST_PREVIOUS_RESPONSE_ID: Final = "gen_ai.request.previous_response.id"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
# ---------------------------------------------------------------------- response
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
USAGE_CACHE_READ_INPUT_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
USAGE_CACHE_WRITE_INPUT_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
USAGE_REASONING_OUTPUT_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
# ---------------------------------------------------------------------- exchange
OPENAI_API_TYPE: Final = "openai.api.type"
HTTP_REQUEST_METHOD: Final = "http.request.method"
HTTP_RESPONSE_STATUS_CODE: Final = "http.response.status_code"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
URL_PATH: Final = "url.path"
ERROR_TYPE: Final = "error.type"
# ---------------------------------------------------------------------- correlation
ROLLOUT_ID: Final = "nemo.gym.rollout.id"
ROLLOUT_TASK_INDEX: Final = "otel_gym.rollout.task_index"
ROLLOUT_ROLLOUT_INDEX: Final = "otel_gym.rollout.rollout_index"
ROLLOUT_ATTEMPT: Final = "otel_gym.rollout.attempt"
MODEL_CALL_ID: Final = "otel_gym.model_call.id"
DIALECT: Final = "otel_gym.dialect"
MODEL_REF_NAME: Final = "otel_gym.model_ref.name"
CLIENT_SESSION_ID: Final = "otel_gym.client_session.id"
# ---------------------------------------------------------------------- who calls
CALLER_SESSION_ID: Final = "otel_gym.client.session_id"
CALLER_AGENT_ID: Final = "otel_gym.client.agent_id"
CALLER_PARENT_ID: Final = "otel_gym.client.parent_id"
CALLER_RETRY_COUNT: Final = "otel_gym.client.retry_count"
# ---------------------------------------------------------------------- the written record
RECORD_DURABLE: Final = "otel_gym.record.durable"
RECORD_FILE: Final = "otel_gym.record.file"
RECORD_BYTES: Final = "otel_gym.record.bytes"
RECORD_SHA256: Final = "otel_gym.record.sha256"
MIRROR_SHED_CONTENT_BYTES: Final = "otel_gym.mirror.shed_content_bytes"
# ---------------------------------------------------------------------- content
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
REQUEST_STOP_SEQUENCES: Final = "gen_ai.request.stop_sequences"

CHAT: Final = "chat"
"""`gen_ai.operation.name` of every model call."""

SPAN_ATTRIBUTES: Final[dict[str, str]] = {
    OPERATION_NAME: "What is done: `chat`.",
    PROVIDER_NAME: "Whose API it is: the setting `provider_name`, else what is known of the server.",
    REQUEST_MODEL: "Model that the request asks for.",
    REQUEST_TEMPERATURE: "Sampling temperature.",
    REQUEST_TOP_P: "Nucleus sampling: the share of probability that is sampled from.",
    REQUEST_TOP_K: "Number of likeliest tokens that are sampled from.",
    REQUEST_MAX_TOKENS: "Most tokens that the answer may have.",
    REQUEST_FREQUENCY_PENALTY: "Penalty on tokens by how often they came.",
    REQUEST_PRESENCE_PENALTY: "Penalty on tokens that came at all.",
    REQUEST_SEED: "Seed of the sampling.",
    REQUEST_CHOICE_COUNT: "Number of answers asked for, when it is not 1.",
    REQUEST_STREAM: "True when a stream was asked for; absent otherwise.",
    REQUEST_REASONING_LEVEL: "Reasoning effort in the provider's own word, such as `low` or `high`.",
    REQUEST_PREVIOUS_RESPONSE_ID: "Response that this request goes on from (Responses API).",
    CONVERSATION_ID: "Conversation that provider or client names, or a chain of responses makes; never the rollout.",
    RESPONSE_ID: "Id of the answer.",
    RESPONSE_MODEL: "Model that answered.",
    RESPONSE_FINISH_REASONS: "Why each answer ended, in the provider's own words.",
    RESPONSE_TIME_TO_FIRST_CHUNK: "Seconds from the request to the first piece of a streamed answer.",
    USAGE_INPUT_TOKENS: "Tokens of the input, those read from and written to a cache included.",
    USAGE_OUTPUT_TOKENS: "Tokens of the answer, reasoning included.",
    USAGE_CACHE_READ_INPUT_TOKENS: "Tokens of the input that came from the provider's cache.",
    USAGE_CACHE_WRITE_INPUT_TOKENS: "Tokens of the input that were written to the provider's cache.",
    USAGE_REASONING_OUTPUT_TOKENS: "Tokens of the answer that were reasoning.",
    OPENAI_API_TYPE: "`chat_completions` or `responses`; absent for Anthropic's API.",
    HTTP_REQUEST_METHOD: "Method of the request.",
    HTTP_RESPONSE_STATUS_CODE: "Status of the response; absent when none began.",
    SERVER_ADDRESS: "Address of the socket that took the request; never what the client wrote into `Host`.",
    SERVER_PORT: "Port of that socket.",
    URL_PATH: "Path of the request, without the rollout prefix.",
    ERROR_TYPE: "The record's `error_category`; absent for a clean call.",
    ROLLOUT_ID: "Rollout that the call belongs to.",
    ROLLOUT_TASK_INDEX: "Task of the rollout, where the id says so.",
    ROLLOUT_ROLLOUT_INDEX: "Repetition of the task, where the id says so.",
    ROLLOUT_ATTEMPT: "Attempt at the rollout, where the id says so.",
    MODEL_CALL_ID: "The call's id, which its record has too.",
    DIALECT: "`responses`, `chat` or `messages`.",
    MODEL_REF_NAME: "Name of the model server: the setting `model_server_name`.",
    CLIENT_SESSION_ID: "The record's `client_session_id`: the header `x-session-id`.",
    CALLER_SESSION_ID: "Session that the agent program says the call is part of.",
    CALLER_AGENT_ID: "Agent or thread within that session.",
    CALLER_PARENT_ID: "Session or thread that started this one.",
    CALLER_RETRY_COUNT: "How often the client's SDK has tried this request before; 0 the first time.",
    RECORD_DURABLE: "Whether the call's record is safely on disk.",
    RECORD_FILE: "Name of the capture file that holds the record.",
    RECORD_BYTES: "Size of the record's line in bytes.",
    RECORD_SHA256: "SHA-256 of the record's line as written, in hexadecimal.",
    MIRROR_SHED_CONTENT_BYTES: "How much content was asked for and left out of this span, for want of room.",
    INPUT_MESSAGES: "What the model was given; JSON of the GenAI message schema.",
    OUTPUT_MESSAGES: "What the model answered; JSON of the GenAI message schema.",
    SYSTEM_INSTRUCTIONS: "Instructions given apart from the messages; JSON of the GenAI message schema.",
    TOOL_DEFINITIONS: "Tools that the model may call; JSON of the GenAI schema.",
    REQUEST_STOP_SEQUENCES: "Texts that end the answer.",
}
"""Name of each attribute of a call's span → what it means, in the order of the trace specification."""

CONTENT_ATTRIBUTES: Final = frozenset(
    {INPUT_MESSAGES, OUTPUT_MESSAGES, SYSTEM_INSTRUCTIONS, TOOL_DEFINITIONS, REQUEST_STOP_SEQUENCES}
)
"""Attributes that carry payload: on a span only where content was asked for."""

# ---------------------------------------------------------------------- rollouts, as their collector sees them
INVOKE_AGENT: Final = "invoke_agent"
EXECUTE_TOOL: Final = "execute_tool"
COMPACT_CONTEXT: Final = "compact_context"
"""`gen_ai.operation.name`, and the beginning of the name, of the spans of a rollout."""

AGENT_NAME: Final = "gen_ai.agent.name"
AGENT_ID: Final = "gen_ai.agent.id"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
OBSERVED_STATUS: Final = "otel_gym.observed.status"
OBSERVED_TIMES: Final = "otel_gym.observed.times"
COMPACTION_TRIGGER: Final = "otel_gym.compaction.trigger"
COMPACTION_OUTCOME: Final = "otel_gym.compaction.outcome"
COMPACTION_TOKENS_BEFORE: Final = "otel_gym.compaction.tokens_before"
COMPACTION_TOKENS_AFTER: Final = "otel_gym.compaction.tokens_after"
EVALUATION_RESULT: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"

ROLLOUT_ATTRIBUTES: Final[dict[str, str]] = {
    OPERATION_NAME: "What is done: `invoke_agent`, `execute_tool` or `compact_context`.",
    ROLLOUT_ID: SPAN_ATTRIBUTES[ROLLOUT_ID],
    ROLLOUT_TASK_INDEX: "Task of the rollout.",
    ROLLOUT_ROLLOUT_INDEX: "Repetition of the task.",
    ROLLOUT_ATTEMPT: "Attempt at the rollout, above 0.",
    ERROR_TYPE: "Why there is no result: the code of `ng_error`; of an invocation or a tool, what the agent says.",
    AGENT_NAME: "Agent that ran the rollout: the row's `agent_ref`, else the source of its observations.",
    AGENT_ID: "The invocation's id, as the agent reports it.",
    TOOL_NAME: "Tool that ran.",
    TOOL_CALL_ID: "The tool call's id, as the model gave it.",
    OBSERVED_STATUS: "How it ended, as the agent reports it.",
    OBSERVED_TIMES: "`reported` by the agent, or `derived` from the model calls around it.",
    COMPACTION_TRIGGER: "What began the compaction.",
    COMPACTION_OUTCOME: "How it ended, as the agent reports it.",
    COMPACTION_TOKENS_BEFORE: "Tokens of the context before it.",
    COMPACTION_TOKENS_AFTER: "Tokens of the context after it.",
}
"""Name of each attribute of the spans that a collection sends → what it means."""

EVALUATION_ATTRIBUTES: Final[dict[str, str]] = {
    EVALUATION_NAME: "What was scored: `reward`.",
    EVALUATION_SCORE: "The row's `reward`, where it is a number.",
}
"""Name of each attribute of the event `gen_ai.evaluation.result` of a rollout's root → what it means."""

# ---------------------------------------------------------------------- what some backends need besides
SESSION_ID: Final = "session.id"
USAGE_CACHE_CREATION_INPUT_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
OPENINFERENCE_SPAN_KIND: Final = "openinference.span.kind"
OPENINFERENCE_PROMPT: Final = "llm.token_count.prompt"
OPENINFERENCE_COMPLETION: Final = "llm.token_count.completion"
OPENINFERENCE_TOTAL: Final = "llm.token_count.total"
OPENINFERENCE_CACHE_READ: Final = "llm.token_count.prompt_details.cache_read"
OPENINFERENCE_CACHE_WRITE: Final = "llm.token_count.prompt_details.cache_write"
OPENINFERENCE_REASONING: Final = "llm.token_count.completion_details.reasoning"

PROFILE_ATTRIBUTES: Final[dict[str, str]] = {
    SESSION_ID: "`phoenix`, `langfuse`: the conversation, else the client's session.",
    USAGE_CACHE_CREATION_INPUT_TOKENS: "`langfuse`: in the place of `gen_ai.usage.cache_write.input_tokens`.",
    OPENINFERENCE_SPAN_KIND: "`phoenix`: `LLM` for a model call.",
    OPENINFERENCE_PROMPT: "`phoenix`: `gen_ai.usage.input_tokens`.",
    OPENINFERENCE_COMPLETION: "`phoenix`: `gen_ai.usage.output_tokens`.",
    OPENINFERENCE_TOTAL: "`phoenix`: both together, where both are known.",
    OPENINFERENCE_CACHE_READ: "`phoenix`: `gen_ai.usage.cache_read.input_tokens`.",
    OPENINFERENCE_CACHE_WRITE: "`phoenix`: `gen_ai.usage.cache_write.input_tokens`.",
    OPENINFERENCE_REASONING: "`phoenix`: `gen_ai.usage.reasoning.output_tokens`.",
}
"""Name of each attribute that a destination's profile adds → which profile, and what it is."""

# ---------------------------------------------------------------------- metrics
REQUEST_DURATION: Final = "gen_ai.server.request.duration"
TIME_TO_FIRST_TOKEN: Final = "gen_ai.server.time_to_first_token"  # noqa: S105  (a metric's name)
TIME_PER_OUTPUT_TOKEN: Final = "gen_ai.server.time_per_output_token"  # noqa: S105  (a metric's name)
MODEL_CALLS: Final = "otel_gym.model_calls"
UNATTRIBUTED_CALLS: Final = "otel_gym.unattributed_calls"
CAPTURE_DURATION: Final = "otel_gym.capture.duration"
RECORDS_WRITTEN: Final = "otel_gym.records.written"
RECORDS_LOST: Final = "otel_gym.records.lost"
MIRROR_SHED: Final = "otel_gym.mirror.shed"

NETWORK_PEER_ADDRESS: Final = "network.peer.address"
SHED_WHAT: Final = "otel_gym.mirror.shed.what"


@dataclass(frozen=True, slots=True)
class Metric:
    """One instrument.

    Attributes:
        kind: the instrument.
        unit: UCUM, as OpenTelemetry writes it.
        description: what it measures.
        boundaries: of a histogram's buckets.
    """

    kind: Literal["counter", "histogram"]
    unit: str
    description: str
    boundaries: tuple[float, ...] = ()


_DOUBLING: Final = tuple(round(0.01 * 2**step, 2) for step in range(20))  # the standard 0.01 … 81.92, and on to 5242.88
_FIRST_TOKEN: Final = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_EACH_TOKEN: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_LATER: Final = (20.48, 40.96, 81.92, 163.84, 327.68)  # a queue before the first token may be long
_ADDED: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

METRICS: Final[dict[str, Metric]] = {
    REQUEST_DURATION: Metric("histogram", "s", "Duration of a model call, to the end of its answer.", _DOUBLING),
    TIME_TO_FIRST_TOKEN: Metric(
        "histogram", "s", "Time to the first piece of a successful streamed answer.", _FIRST_TOKEN + _LATER
    ),
    TIME_PER_OUTPUT_TOKEN: Metric(
        "histogram", "s", "Time per token after the first, of a successful streamed answer.", _EACH_TOKEN
    ),
    MODEL_CALLS: Metric("counter", "{call}", "Captured model calls, by outcome (`error.type`)."),
    UNATTRIBUTED_CALLS: Metric("counter", "{call}", "Model calls that came without a rollout prefix, by peer."),
    CAPTURE_DURATION: Metric("histogram", "s", "Time that capture added to a call.", _ADDED),
    RECORDS_WRITTEN: Metric("counter", "By", "Bytes of records that are safely on disk."),
    RECORDS_LOST: Metric("counter", "{record}", "Records that could not be written; their rollouts are marked."),
    MIRROR_SHED: Metric("counter", "{span}", "Spans that the mirror sent without their content, or did not send."),
}
"""Name of each metric → its instrument."""

METRIC_ATTRIBUTES: Final[dict[str, str]] = {
    OPERATION_NAME: SPAN_ATTRIBUTES[OPERATION_NAME],
    PROVIDER_NAME: SPAN_ATTRIBUTES[PROVIDER_NAME],
    REQUEST_MODEL: SPAN_ATTRIBUTES[REQUEST_MODEL],
    RESPONSE_MODEL: SPAN_ATTRIBUTES[RESPONSE_MODEL],
    SERVER_ADDRESS: SPAN_ATTRIBUTES[SERVER_ADDRESS],
    SERVER_PORT: SPAN_ATTRIBUTES[SERVER_PORT],
    ERROR_TYPE: SPAN_ATTRIBUTES[ERROR_TYPE],
    NETWORK_PEER_ADDRESS: "Address that an unattributed call came from.",
    SHED_WHAT: "What the mirror gave up: `content` or `span`.",
}
"""Name of each metric attribute → what it means. A rollout id is never one: each would be a new time series."""


def differences(emitted: Iterable[str], table: Iterable[str] = SPAN_ATTRIBUTES) -> tuple[set[str], set[str]]:
    """The names that were emitted but are in no table, and those of the table that were never emitted."""
    seen, known = set(emitted), set(table)
    return seen - known, known - seen
