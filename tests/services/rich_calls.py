"""A call of each dialect that says all that its API can say, and what a backend should show of it.

Source: the trace specification's table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from otel_gym.testing import DialectName, answer

# What harnesses say of themselves: the parent's thread, a sub-agent's own, and an SDK's second try.
HEADERS = {
    "x-session-id": "s1",
    "session-id": "s2",
    "thread-id": "t1",
    "x-codex-parent-thread-id": "t0",
    "x-stainless-retry-count": "1",
}
TYPES = {
    "boolValue": ("gen_ai.request.stream", "otel_gym.record.durable"),
    "doubleValue": (
        *(f"gen_ai.request.{name}" for name in ("temperature", "top_p", "frequency_penalty", "presence_penalty")),
        "gen_ai.response.time_to_first_chunk",
    ),
    "intValue": (
        *(f"gen_ai.request.{name}" for name in ("top_k", "max_tokens", "seed", "choice.count")),
        *(f"gen_ai.usage.{name}" for name in ("input_tokens", "output_tokens", "reasoning.output_tokens")),
        *(f"gen_ai.usage.{name}.input_tokens" for name in ("cache_read", "cache_write")),
        "http.response.status_code",
        "server.port",
        *(f"otel_gym.rollout.{name}" for name in ("task_index", "rollout_index", "attempt")),
        "otel_gym.client.retry_count",
        "otel_gym.record.bytes",
        "otel_gym.mirror.shed_content_bytes",
    ),
    "arrayValue": ("gen_ai.response.finish_reasons", "gen_ai.request.stop_sequences"),
}
"""The type in OTLP → the attributes that have it; all others are strings."""

_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
_FUNCTION = {"name": "population", "description": "People of a city", "parameters": _SCHEMA}


@dataclass(frozen=True)
class RichCall:
    """One call.

    Attributes:
        request: what its body has beyond the least.
        usage: of its answer.
        expected: what its span says of request and answer, streamed or not.
    """

    dialect: DialectName
    request: dict[str, Any]
    usage: dict[str, Any]
    expected: dict[str, Any]

    def events(self) -> list[dict[str, Any]]:
        """The answer as the payloads of a stream."""
        whole = {**answer(self.dialect, "hello"), "usage": self.usage}
        if self.dialect == "chat":
            chunk = {"id": whole["id"], "object": "chat.completion.chunk", "model": whole["model"]}
            deltas = [({"role": "assistant", "content": "hel"}, None), ({"content": "lo"}, None), ({}, "stop")]
            choices = [{"index": 0, "delta": delta, "finish_reason": reason} for delta, reason in deltas]
            chunks = [{**chunk, "choices": [choice]} for choice in choices]
            return [*chunks, {**chunk, "choices": [], "usage": self.usage}]
        if self.dialect == "responses":
            begun = {**whole, "status": "in_progress", "output": [], "usage": None}
            return [
                {"type": "response.created", "response": begun},
                {"type": "response.completed", "response": whole},
            ]
        text = {"type": "text", "text": ""}
        return [
            {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": text},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 50}},
            {"type": "message_stop"},
        ]


RICH_CALLS = {
    "chat": RichCall(
        "chat",
        {
            "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
            "temperature": 0.5,
            "top_p": 1,
            "top_k": 40,
            "max_tokens": 64,
            "frequency_penalty": 0.25,
            "presence_penalty": -1,
            "seed": 7,
            "n": 2,
            "reasoning_effort": "low",
            "stop": ["END"],
            "tools": [{"type": "function", "function": _FUNCTION}],
        },
        {
            "prompt_tokens": 70,
            "completion_tokens": 50,
            "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 20},
            "completion_tokens_details": {"reasoning_tokens": 30},
        },
        {
            "openai.api.type": "chat_completions",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.request.top_p": 1.0,
            "gen_ai.request.top_k": 40,
            "gen_ai.request.max_tokens": 64,
            "gen_ai.request.frequency_penalty": 0.25,
            "gen_ai.request.presence_penalty": -1.0,
            "gen_ai.request.seed": 7,
            "gen_ai.request.choice.count": 2,
            "gen_ai.request.reasoning.level": "low",
            "gen_ai.request.stop_sequences": ["END"],
            "gen_ai.response.id": "c1",
            "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.conversation.id": "s1",
            "gen_ai.usage.cache_read.input_tokens": 20,
            "gen_ai.usage.reasoning.output_tokens": 30,
        },
    ),
    "responses": RichCall(
        "responses",
        {
            "instructions": "be brief",
            "temperature": 0.5,
            "top_p": 1,
            "max_output_tokens": 64,
            "reasoning": {"effort": "high"},
            "previous_response_id": "r0",
            "conversation": {"id": "conv_1"},
            "tools": [{"type": "function", **_FUNCTION}],
        },
        {
            "input_tokens": 70,
            "output_tokens": 50,
            "total_tokens": 120,
            "input_tokens_details": {"cached_tokens": 20},
            "output_tokens_details": {"reasoning_tokens": 30},
        },
        {
            "openai.api.type": "responses",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.request.top_p": 1.0,
            "gen_ai.request.max_tokens": 64,
            "gen_ai.request.reasoning.level": "high",
            "gen_ai.request.previous_response.id": "r0",
            "gen_ai.response.id": "r1",
            "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.conversation.id": "conv_1",
            "gen_ai.usage.cache_read.input_tokens": 20,
            "gen_ai.usage.reasoning.output_tokens": 30,
        },
    ),
    "messages": RichCall(
        "messages",
        {
            "system": "be brief",
            "temperature": 0.5,
            "top_p": 1,
            "top_k": 40,
            "output_config": {"effort": "medium"},
            "stop_sequences": ["END"],
            "tools": [{"name": "population", "description": "People of a city", "input_schema": _SCHEMA}],
        },
        {"input_tokens": 40, "output_tokens": 50, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 10},
        {
            "gen_ai.provider.name": "anthropic",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.request.top_p": 1.0,
            "gen_ai.request.top_k": 40,
            "gen_ai.request.max_tokens": 64,
            "gen_ai.request.reasoning.level": "medium",
            "gen_ai.request.stop_sequences": ["END"],
            "gen_ai.response.id": "msg_1",
            "gen_ai.response.finish_reasons": ["end_turn"],
            "gen_ai.conversation.id": "s1",
            "gen_ai.usage.cache_read.input_tokens": 20,
            "gen_ai.usage.cache_write.input_tokens": 10,
        },
    ),
}
