"""What a span says of a request, as far as the three APIs write it alike.

Source: the trace specification's table, row "request".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_gym import semconv
from otel_gym.dialects.attribute_values import number, searched, whole
from otel_gym.semconv import AttributeValue
from otel_gym_jsonl import json_text

_SAMPLING: Final[dict[str, tuple[str, Callable[[Any], int | float | None]]]] = {
    "temperature": (semconv.REQUEST_TEMPERATURE, number),
    "top_p": (semconv.REQUEST_TOP_P, number),
    "frequency_penalty": (semconv.REQUEST_FREQUENCY_PENALTY, number),
    "presence_penalty": (semconv.REQUEST_PRESENCE_PENALTY, number),
    "top_k": (semconv.REQUEST_TOP_K, whole),
    "seed": (semconv.REQUEST_SEED, whole),
}
# Only words that providers define: what else a client may write there is payload, and a token budget is no level.
_LEVELS: Final = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
_EFFORT_HOLDERS: Final = ("reasoning", "output_config", "thinking")


def settings_of(request: Mapping[str, Any], *, max_tokens: tuple[str, ...]) -> dict[str, AttributeValue]:
    """The operation, the model and how to sample.

    Args:
        max_tokens: keys under which the API keeps the bound of the answer, the first that holds one counts.
    """
    facts: dict[str, AttributeValue] = {semconv.OPERATION_NAME: semconv.CHAT}
    model = searched(request.get("model"))
    if model is not None:
        facts[semconv.REQUEST_MODEL] = model
    for key in max_tokens:
        if key in request and (bound := whole(request[key])) is not None:
            facts[semconv.REQUEST_MAX_TOKENS] = bound
            break
    if request.get("stream") is True:
        facts[semconv.REQUEST_STREAM] = True
    level = reasoning_level(request)
    if level is not None:
        facts[semconv.REQUEST_REASONING_LEVEL] = level
    for key, (name, read) in _SAMPLING.items():
        if key in request and (value := read(request[key])) is not None:
            facts[name] = value
    return facts


def known(facts: Mapping[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    """The facts without those that are None."""
    return {name: value for name, value in facts.items() if value is not None}


def reasoning_level(request: Mapping[str, Any]) -> str | None:
    """The effort asked for: `reasoning_effort`, `reasoning.effort`, `output_config.effort`, `thinking.effort`."""
    effort = request.get("reasoning_effort")
    if isinstance(effort, str) and effort in _LEVELS:
        return effort
    for key in _EFFORT_HOLDERS:
        if key in request and isinstance(holder := request[key], Mapping):
            effort = holder.get("effort")
            if isinstance(effort, str) and effort in _LEVELS:
                return effort
    return None


def stop_sequences(request: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The texts that end the answer; they are payload."""
    for key in ("stop", "stop_sequences"):
        given = request.get(key)
        items = given if isinstance(given, list) else [given]
        texts = tuple(json_text.mend_surrogates(item) for item in items if isinstance(item, str))
        if texts:
            return texts
    return None
