"""What a span says of a request, as far as the three APIs write it alike.

Source: the trace specification's table, row "request".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_gym import semconv
from otel_gym.dialects.attribute_values import number, searched, whole
from otel_gym.semconv import AttributeValue
from otel_gym_jsonl import json_text

_NUMBERS: Final = {
    "temperature": semconv.REQUEST_TEMPERATURE,
    "top_p": semconv.REQUEST_TOP_P,
    "frequency_penalty": semconv.REQUEST_FREQUENCY_PENALTY,
    "presence_penalty": semconv.REQUEST_PRESENCE_PENALTY,
}
_WHOLES: Final = {"top_k": semconv.REQUEST_TOP_K, "seed": semconv.REQUEST_SEED}
# Only words that providers define: what else a client may write there is payload, and a token budget is no level.
_LEVELS: Final = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
_EFFORT_HOLDERS: Final = ("reasoning", "output_config", "thinking")


def settings_of(request: Mapping[str, Any], *, max_tokens: tuple[str, ...]) -> dict[str, AttributeValue]:
    """The operation, the model and how to sample.

    Args:
        max_tokens: keys under which the API keeps the bound of the answer, the first that holds one counts.
    """
    facts: dict[str, AttributeValue | None] = {
        semconv.OPERATION_NAME: semconv.CHAT,
        semconv.REQUEST_MODEL: searched(request.get("model")),
        semconv.REQUEST_MAX_TOKENS: next(
            (bound for key in max_tokens if (bound := whole(request.get(key))) is not None), None
        ),
        semconv.REQUEST_STREAM: True if request.get("stream") is True else None,
        semconv.REQUEST_REASONING_LEVEL: reasoning_level(request),
    }
    facts.update((name, number(request.get(key))) for key, name in _NUMBERS.items())
    facts.update((name, whole(request.get(key))) for key, name in _WHOLES.items())
    return known(facts)


def known(facts: Mapping[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    """The facts without those that are None."""
    return {name: value for name, value in facts.items() if value is not None}


def reasoning_level(request: Mapping[str, Any]) -> str | None:
    """The effort asked for: `reasoning_effort`, `reasoning.effort`, `output_config.effort`, `thinking.effort`."""
    efforts = [request.get("reasoning_effort")]
    for key in _EFFORT_HOLDERS:
        holder = request.get(key)
        if isinstance(holder, Mapping):
            efforts.append(holder.get("effort"))
    return next((effort for effort in efforts if isinstance(effort, str) and effort in _LEVELS), None)


def stop_sequences(request: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The texts that end the answer; they are payload."""
    for key in ("stop", "stop_sequences"):
        given = request.get(key)
        items = given if isinstance(given, list) else [given]
        texts = tuple(json_text.mend_surrogates(item) for item in items if isinstance(item, str))
        if texts:
            return texts
    return None
