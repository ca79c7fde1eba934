"""Why a call failed, or why something of it is missing, in words for a person.

The categories are those of the capture format ("error_category").
"""

from __future__ import annotations

from otel_gym_jsonl.model_calls import ModelCallRecord

CATEGORIES = {
    "timeout": "the answer did not come in time (HTTP 408 or 504, or a time-out in the model server).",
    "rate_limit": "the model server refused the call for its rate limit (HTTP 429).",
    "auth": "the model server refused the call's credentials (HTTP 401 or 403).",
    "not_found": "the model server knows no such path or model (HTTP 404).",
    "client_error": "the model server refused the request (another HTTP 4xx); the response says why.",
    "upstream_error": "the model server failed (HTTP 5xx), or the stream itself ended with an error event.",
    "context_length_exceeded": "the prompt was too long for the model; the model server answered by itself.",
    "incomplete": "the answer says itself that it is incomplete (response.incomplete).",
    "stream_truncated": "the stream ended without its terminal event: the client or the upstream hung up. What had "
    "come is kept, joined in the response and as text in response_raw.",
    "capture_parse_error": "the body is no JSON object, or one that cannot be stored; its text is in response_raw.",
    "cancelled": "the call was cancelled before its answer was whole; most often the client went away.",
    "connection": "the model server lost the connection to what it was calling.",
    "exception": "the model server raised an error, or sent no answer at all.",
}
UNKNOWN_CATEGORY = "a category that this version does not know."

NO_STATUS = "no_status"
NO_RESPONSE = "no_response"
NO_USAGE = "no_usage"
REQUEST_UNREADABLE = "request_unreadable"
NO_REQUEST = "no_request"

MISSING_PARTS = {
    NO_STATUS: "no response began, so there is no status.",
    NO_RESPONSE: "there is no response object; what body there was is in response_raw, unless it was above "
    "body_limit_bytes.",
    NO_USAGE: "the response carries no usage, so tokens are unknown. A chat stream has it only if the request sets "
    "stream_options.include_usage.",
    REQUEST_UNREADABLE: "the request body was no JSON object that can be stored; its text is in request_raw.",
    NO_REQUEST: "no request body was recorded: there was none, the application did not read it (as when it refuses a "
    "key), or it was above body_limit_bytes.",
}


def missing_parts(call: ModelCallRecord) -> list[str]:
    """Codes (`MISSING_PARTS`) of what a call lacks."""
    parts = []
    if call.request is None:
        parts.append(NO_REQUEST if call.request_raw is None else REQUEST_UNREADABLE)
    if call.status_code is None:
        parts.append(NO_STATUS)
    if call.response is None:
        parts.append(NO_RESPONSE)
    elif call.tokens_in is None and call.tokens_out is None:
        parts.append(NO_USAGE)
    return parts
