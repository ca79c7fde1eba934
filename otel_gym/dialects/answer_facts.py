"""What a span says of an answer, in whichever of the three shapes it came.

The shape is told by the answer itself and not by the dialect: servers do answer in another one's shape.
Source: the trace specification's table, rows "response" and "usage"; counts as in `otel_gym_jsonl.usage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_gym import semconv
from otel_gym.dialects.attribute_values import searched, whole
from otel_gym.dialects.request_facts import known
from otel_gym.semconv import AttributeValue
from otel_gym_jsonl.usage import token_counts

# The Responses API says how an answer stands, and only of an incomplete one why.
_BY_STATUS: Final = {"completed": "stop", "failed": "error", "cancelled": "cancelled"}
TOOL_CALL: Final = "tool_call"
# Items by which the model asks the client for something; other calls are the provider's own business.
CLIENT_CALLS: Final = frozenset(
    {"function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call"}
)


def response_facts(response: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Id, model, finish reasons and usage; what the answer does not say is absent."""
    tokens = token_counts(response.get("usage"))
    return known(
        {
            semconv.RESPONSE_ID: searched(response.get("id")),
            semconv.RESPONSE_MODEL: searched(response.get("model")),
            semconv.RESPONSE_FINISH_REASONS: finish_reasons(response) or None,
            semconv.USAGE_INPUT_TOKENS: whole(tokens.tokens_in),
            semconv.USAGE_OUTPUT_TOKENS: whole(tokens.tokens_out),
            semconv.USAGE_CACHE_READ_INPUT_TOKENS: whole(tokens.cached),
            semconv.USAGE_CACHE_WRITE_INPUT_TOKENS: whole(tokens.cache_creation),
            semconv.USAGE_REASONING_OUTPUT_TOKENS: whole(tokens.reasoning),
        }
    )


def finish_reasons(response: Mapping[str, Any]) -> tuple[str, ...]:
    """Why each answer ended: the one answer, else every choice in order; empty where nothing says so."""
    reason = searched(response.get("stop_reason"))
    if reason is not None:
        return (reason,)
    choices = response.get("choices")
    if isinstance(choices, list):
        given = [choice.get("finish_reason") for choice in choices if isinstance(choice, (dict, Mapping))]
        if found := tuple(reason for reason in map(searched, given) if reason is not None):
            return found
    reason = searched(_reason_of_status(response))
    return () if reason is None else (reason,)


def _reason_of_status(response: Mapping[str, Any]) -> Any:
    details = response.get("incomplete_details")
    if isinstance(details, Mapping) and searched(details.get("reason")):
        return details["reason"]
    output = response.get("output")
    status = response.get("status")
    if not isinstance(status, str) or not isinstance(output, list):
        return None
    if status == "completed" and any(map(_is_client_call, output)):
        return TOOL_CALL
    return _BY_STATUS.get(status)


def _is_client_call(item: Any) -> bool:
    kind = item.get("type") if isinstance(item, Mapping) else None
    return isinstance(kind, str) and kind in CLIENT_CALLS
