"""A client's request in any dialect, as the chat request that a worker gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_gym.errors import ConversionError
from otel_gym.staging.backend.messages_request import from_messages
from otel_gym.staging.backend.responses_request import custom_tools, from_responses
from otel_gym.staging.records import CaptureAdmission

__all__ = ["ADMISSION", "chat_request", "custom_tools", "worker_request"]

ADMISSION: Final = "ng_capture"
"""Key of a worker's request that holds the admission."""


def chat_request(dialect: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """The request as a chat request; of a chat request a copy.

    Args:
        dialect: `chat`, `responses` or `messages`.
        request: with flat names of tools (`otel_gym.staging.namespaces`).

    Raises:
        ConversionError: it holds what chat cannot say, or asks for more than one answer.
    """
    if dialect == "responses":
        return from_responses(request)
    if dialect == "messages":
        return from_messages(request)
    if dialect != "chat":
        raise ConversionError(f"there is no dialect {dialect!r}")
    if request.get("n") not in (None, 1):
        raise ConversionError(f"a call that is staged has one answer, n is {request.get('n')!r:.80}")
    return dict(request)


def worker_request(chat: Mapping[str, Any], admission: CaptureAdmission) -> dict[str, Any]:
    """What the worker is asked: a whole answer, with its tokens, staged as the admission says."""
    asked = {key: value for key, value in chat.items() if key not in ("stream", "stream_options")}
    asked |= {
        "stream": False,
        "logprobs": True,
        "top_logprobs": 0,
        "return_tokens_as_token_ids": True,
        ADMISSION: admission.model_dump(mode="json"),
    }
    if admission.required_prefix_token_ids:
        asked["required_prefix_token_ids"] = list(admission.required_prefix_token_ids)
    return asked
