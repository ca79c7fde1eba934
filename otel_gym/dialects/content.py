"""The content attributes of a call: what was said, as JSON of the GenAI message schema.

Request and answer are taken apart by the room of the dialect, the answer by that of its own shape: servers do answer in
another dialect's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from otel_gym import semconv
from otel_gym.dialects import chat_content, messages_content, responses_content
from otel_gym.dialects.request_facts import stop_sequences

UNKNOWN: Final = "unknown"
"""Finish reason of an answer that has none, such as one that broke off: backends show no message without one."""


class Requests(Protocol):
    """How the requests of a dialect are read."""

    def input_messages(self, request: Mapping[str, Any]) -> str | None:
        """JSON of the messages."""

    def system_instructions(self, request: Mapping[str, Any]) -> str | None:
        """JSON of the instructions that stand apart from the messages."""

    def tool_definitions(self, request: Mapping[str, Any]) -> str | None:
        """JSON of the tools."""


def output_messages(response: Mapping[str, Any]) -> str | None:
    """JSON of the answer's messages, in whichever of the three shapes it came; None for one in no shape."""
    if isinstance(response.get("output"), list):
        return responses_content.output_messages(response, UNKNOWN)
    if isinstance(response.get("choices"), list):
        return chat_content.output_messages(response, UNKNOWN)
    return messages_content.output_messages(response, UNKNOWN)


def content_attributes(
    requests: Requests, request: Mapping[str, Any] | None, response: Mapping[str, Any] | None
) -> dict[str, str | tuple[str, ...]]:
    """What is there to say of the content; never raises for what JSON may hold."""
    attributes: dict[str, str | tuple[str, ...] | None] = {}
    if request is not None:
        attributes[semconv.REQUEST_STOP_SEQUENCES] = stop_sequences(request)
        attributes[semconv.SYSTEM_INSTRUCTIONS] = requests.system_instructions(request)
        attributes[semconv.TOOL_DEFINITIONS] = requests.tool_definitions(request)
        attributes[semconv.INPUT_MESSAGES] = requests.input_messages(request)
    if response is not None:
        attributes[semconv.OUTPUT_MESSAGES] = output_messages(response)
    return {name: value for name, value in attributes.items() if value is not None}
