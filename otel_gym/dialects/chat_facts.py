"""What a span says of a Chat Completions request and answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_gym import semconv
from otel_gym.dialects.answer_facts import response_facts
from otel_gym.dialects.attribute_values import whole
from otel_gym.dialects.request_facts import settings_of
from otel_gym.semconv import AttributeValue

__all__ = ["request_facts", "response_facts"]


def request_facts(request: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Of an empty request: what is true of every one."""
    facts = settings_of(request, max_tokens=("max_completion_tokens", "max_tokens"))
    facts[semconv.OPENAI_API_TYPE] = "chat_completions"
    count = whole(request.get("n"))
    if count is not None and count != 1:
        facts[semconv.REQUEST_CHOICE_COUNT] = count
    return facts
