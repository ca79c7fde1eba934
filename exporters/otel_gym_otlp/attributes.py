"""The span attributes that the mirror itself knows: what it adds, what it removes, what counts as content."""

from __future__ import annotations

RECORD_DURABLE = "otel_gym.record.durable"
"""Whether the record of this call is on disk, fsynced."""
RECORD_FILE = "otel_gym.record.file"
"""Name of the capture file that holds the record; absent when it is not durable."""
RECORD_BYTES = "otel_gym.record.bytes"
"""Length of the record's line in bytes; absent when it is not durable."""
RECORD_SHA256 = "otel_gym.record.sha256"
"""SHA-256 of the record's line, in hex; absent when it is not durable."""
SHED_CONTENT_BYTES = "otel_gym.mirror.shed_content_bytes"
"""The destination wants content, and this much of it was left out for want of room, in the queue or at the receiver."""

INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
STOP_SEQUENCES = "gen_ai.request.stop_sequences"

CONTENT = frozenset(
    {
        INPUT_MESSAGES,
        OUTPUT_MESSAGES,
        SYSTEM_INSTRUCTIONS,
        TOOL_DEFINITIONS,
        STOP_SEQUENCES,
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "gen_ai.tool.description",
        "gen_ai.evaluation.explanation",
        "exception.message",
        "exception.stacktrace",
    }
)
"""Attributes, of spans and of their events, that may hold payload: they leave only where content is wanted."""

ERROR_TYPE = "error.type"
CONVERSATION_ID = "gen_ai.conversation.id"
CLIENT_SESSION_ID = "otel_gym.client_session.id"
CLIENT_OWN_SESSION_ID = "otel_gym.client.session_id"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_write.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
