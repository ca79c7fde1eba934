"""The attribute contract of the evidence span (public; `docs/format.md` shows it as a table).

A span that carries these attributes becomes one line of a capture file, whoever made it. Scalars of the record stand
under `otel_gym.evidence.<key>`; a key that is null in the record is absent on the span. Bodies are JSON or plain
text, as `str` or as UTF-8 `bytes`. Source: the project's fixed names, "The evidence span".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PREFIX = "otel_gym.evidence."

ROLLOUT_ID = PREFIX + "rollout_id"
"""The rollout, and so the file, that the record belongs to; required."""
MODEL_CALL_ID = PREFIX + "model_call_id"
"""32 lower-case hex characters, new for each call; required."""
DIALECT = PREFIX + "dialect"
"""`responses`, `chat` or `messages`; required."""
MODEL_REF_NAME = PREFIX + "model_ref_name"
"""Name of the model server; absent: `model_ref` is null."""
STARTED_AT = PREFIX + "started_at"
"""Wall clock at the start of the call, Unix seconds; required."""
COMPLETED_AT = PREFIX + "completed_at"
"""Wall clock at the end of the call, Unix seconds; required."""
LATENCY_MS = PREFIX + "latency_ms"
"""Monotonic duration in milliseconds, 2 decimals; required."""
LATENCY_TTFT_MS = PREFIX + "latency_ttft_ms"
"""Milliseconds to the first piece of the answer; absent when none came."""
STATUS_CODE = PREFIX + "status_code"
"""HTTP status; absent when no response began."""
ERROR_CATEGORY = PREFIX + "error_category"
"""What went wrong, in one word; absent for a clean call."""
REQUEST = PREFIX + "request"
"""The request's JSON object, as JSON text."""
RESPONSE = PREFIX + "response"
"""The response's JSON object (of a stream: the rebuilt one), as JSON text."""
CLIENT_SESSION_ID = PREFIX + "client_session_id"
"""The session that the client declared."""
UPSTREAM_ATTEMPTED = PREFIX + "upstream_attempted"
"""Whether the application asked an upstream."""
RESPONSE_SOURCE = PREFIX + "response_source"
"""Where the answer came from: `upstream` or `local`."""
UPSTREAM_STATUS_CODE = PREFIX + "upstream_status_code"
"""HTTP status of the upstream's answer."""
LOCAL_RESPONSE_REASON = PREFIX + "local_response_reason"
"""Why the application answered by itself."""
REQUEST_RAW = PREFIX + "request_raw"
"""Text of a request body that was no JSON object."""
RESPONSE_RAW = PREFIX + "response_raw"
"""Text of a response body that was a stream or no JSON object."""
NULL_KEYS = PREFIX + "null_keys"
"""Names of the outcome keys that stand in the record with null."""

OUTCOME_KEYS = ("upstream_attempted", "response_source", "upstream_status_code", "local_response_reason")
"""The four keys of an execution outcome, in record order."""


def plain(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes of a span as a dict, where the SDK gives one: its own mapping takes a lock for each look."""
    copy = getattr(attributes, "copy", None)
    return attributes if copy is None else copy()
