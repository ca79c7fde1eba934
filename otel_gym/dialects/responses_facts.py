"""What a span says of a Responses request and answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_gym import semconv
from otel_gym.dialects import answer_facts
from otel_gym.dialects.attribute_values import searched
from otel_gym.dialects.request_facts import known, settings_of
from otel_gym.semconv import AttributeValue


def request_facts(request: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Of an empty request: what is true of every one."""
    return {
        **settings_of(request, max_tokens=("max_output_tokens",)),
        **known(
            {
                semconv.OPENAI_API_TYPE: "responses",
                semconv.REQUEST_PREVIOUS_RESPONSE_ID: searched(request.get("previous_response_id")),
                semconv.CONVERSATION_ID: conversation_id(request),
            }
        ),
    }


def response_facts(response: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """As for any answer, and the conversation that the provider keeps it in."""
    return {
        **answer_facts.response_facts(response),
        **known({semconv.CONVERSATION_ID: conversation_id(response)}),
    }


def conversation_id(exchange: Mapping[str, Any]) -> str | None:
    """The `conversation` of a request or an answer, given by its id or as an object."""
    conversation = exchange.get("conversation")
    return searched(conversation.get("id") if isinstance(conversation, Mapping) else conversation)
