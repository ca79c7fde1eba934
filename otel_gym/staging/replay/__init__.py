"""From a worker's whole chat answer to what a client gets: an answer in its own dialect, or the events of one.

Pure functions: nothing here waits, reads or writes. The order in which a server uses them, so that a call is recorded
as staged only when its answer can be given, is in `docs/staging.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_gym.errors import ConversionError
from otel_gym.staging.replay.chat import chat_events
from otel_gym.staging.replay.commits import Commit, commit_of
from otel_gym.staging.replay.event_text import KEEP_ALIVE, KEEP_ALIVE_SECONDS, json_bytes
from otel_gym.staging.replay.failures import failure_events
from otel_gym.staging.replay.internal_fields import COMMIT_COORDS, INTERNAL_FIELDS, without_internal_fields
from otel_gym.staging.replay.messages import messages_answer, messages_events
from otel_gym.staging.replay.responses import responses_answer
from otel_gym.staging.replay.responses_events import responses_events
from otel_gym.staging.replay.worker_answer import read_answer

__all__ = [
    "COMMIT_COORDS",
    "INTERNAL_FIELDS",
    "KEEP_ALIVE",
    "KEEP_ALIVE_SECONDS",
    "Commit",
    "chat_events",
    "commit_of",
    "converted",
    "failure_events",
    "json_bytes",
    "messages_answer",
    "messages_events",
    "read_answer",
    "replayed",
    "responses_answer",
    "responses_events",
    "without_internal_fields",
]


def converted(dialect: str, answer: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """A worker's chat answer as the client's dialect has it, without internal fields.

    Args:
        dialect: `chat`, `responses` or `messages`.
        answer: the worker's, names of tools restored (`otel_gym.staging.namespaces`).
        request: the client's, as it came.

    Raises:
        ConversionError: the answer cannot be said in this dialect.
    """
    try:
        clean: dict[str, Any] = without_internal_fields(dict(answer))
    except RecursionError:
        raise ConversionError("the answer is nested too deep to be read") from None
    if dialect == "chat":
        return clean
    if dialect == "responses":
        return responses_answer(read_answer(clean), request)
    if dialect == "messages":
        return messages_answer(read_answer(clean), request)
    raise ConversionError(f"there is no dialect {dialect!r}")


def replayed(dialect: str, answer: Mapping[str, Any], request: Mapping[str, Any]) -> list[bytes]:
    """All events of a converted answer, in order: once they are there, nothing can fail any more.

    Args:
        dialect: as for `converted`.
        answer: what `converted` gave.
        request: the client's, as it came; `stream_options` say whether a chat client wants the usage apart.

    Raises:
        ConversionError: something of the answer is no JSON.
    """
    if dialect == "chat":
        options = request.get("stream_options")
        apart = isinstance(options, Mapping) and options.get("include_usage") is True
        return list(chat_events(answer, include_usage=apart))
    if dialect == "responses":
        return list(responses_events(answer))
    if dialect == "messages":
        return list(messages_events(answer))
    raise ConversionError(f"there is no dialect {dialect!r}")
