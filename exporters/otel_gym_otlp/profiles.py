"""What a backend needs beside the conventions, so that it shows a model call as one.

`default` adds nothing. `phoenix`: the span kind, token counts and session of OpenInference. `langfuse`: the session,
and the older name of the tokens that went into a cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otel_gym_otlp import attributes as names

SESSION_ID = "session.id"
CACHE_CREATION_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
SPAN_KIND = "openinference.span.kind"
_OPERATION = "gen_ai.operation.name"
_KINDS = {
    "chat": "LLM",
    "text_completion": "LLM",
    "generate_content": "LLM",
    "execute_tool": "TOOL",
    "invoke_agent": "AGENT",
}
_OPENINFERENCE_TOKENS = {
    names.INPUT_TOKENS: "llm.token_count.prompt",
    names.OUTPUT_TOKENS: "llm.token_count.completion",
    names.CACHE_READ_TOKENS: "llm.token_count.prompt_details.cache_read",
    names.CACHE_WRITE_TOKENS: "llm.token_count.prompt_details.cache_write",
    names.REASONING_TOKENS: "llm.token_count.completion_details.reasoning",
}
_SESSIONS = (names.CONVERSATION_ID, names.CLIENT_SESSION_ID, names.CLIENT_OWN_SESSION_ID)


def _default(attributes: dict[str, Any]) -> None:
    pass


def _session(attributes: dict[str, Any]) -> None:
    session = next((attributes[name] for name in _SESSIONS if attributes.get(name)), None)
    if session is not None:
        attributes.setdefault(SESSION_ID, session)


def _phoenix(attributes: dict[str, Any]) -> None:
    attributes[SPAN_KIND] = _KINDS.get(str(attributes.get(_OPERATION)), "CHAIN")
    for name, theirs in _OPENINFERENCE_TOKENS.items():
        if name in attributes:
            attributes[theirs] = attributes[name]
    tokens_in, tokens_out = attributes.get(names.INPUT_TOKENS), attributes.get(names.OUTPUT_TOKENS)
    if isinstance(tokens_in, int) and isinstance(tokens_out, int):
        attributes["llm.token_count.total"] = tokens_in + tokens_out
    _session(attributes)


def _langfuse(attributes: dict[str, Any]) -> None:
    _session(attributes)
    if names.CACHE_WRITE_TOKENS in attributes:
        attributes[CACHE_CREATION_TOKENS] = attributes.pop(names.CACHE_WRITE_TOKENS)


PROFILES: dict[str, Callable[[dict[str, Any]], None]] = {
    "default": _default,
    "phoenix": _phoenix,
    "langfuse": _langfuse,
}
"""Name of a profile → what it does to a span's attributes, in place."""
