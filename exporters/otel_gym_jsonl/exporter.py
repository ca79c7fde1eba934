"""From an ended span to a line of a capture file."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_gym_jsonl import attributes as names
from otel_gym_jsonl import json_text
from otel_gym_jsonl.store import CaptureStore

logger = logging.getLogger(__name__)

_REQUIRED = (
    names.ROLLOUT_ID,
    names.MODEL_CALL_ID,
    names.DIALECT,
    names.STARTED_AT,
    names.COMPLETED_AT,
    names.LATENCY_MS,
)


class JsonlSpanExporter(SpanExporter):
    """Writes each ended span that carries the evidence attributes as one record of its rollout's capture file.

    Usable alone, in any OpenTelemetry pipeline: `export` returns after the records are durable, with FAILURE when one
    is not. Spans without the evidence attributes are passed over. A rollout that loses a record is marked incomplete as
    soon as the disk takes the marker (`CaptureStore`).

    Args:
        directory: absolute path of the capture directory; made when missing.

    Raises:
        ValueError: the path is not absolute.
        OSError: the directory cannot be made.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.store = CaptureStore(directory)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Append the records of these spans, one lock and one fsync a rollout. Never raises."""
        result = SpanExportResult.SUCCESS
        lines: dict[str, list[bytes]] = {}
        for span in spans:
            evidence = span.attributes or {}
            if not is_evidence(evidence):
                continue
            rollout_id = str(evidence[names.ROLLOUT_ID])
            try:
                made = line(evidence)
            except Exception as exc:  # noqa: BLE001  whatever anybody's attributes hold, the neighbours are written
                logger.error("otel-gym: a span of rollout %r cannot become a record: %s", rollout_id, exc)
                result = SpanExportResult.FAILURE
                self.store.markers.put(rollout_id)
            else:
                lines.setdefault(rollout_id, []).append(made)
        for rollout_id, group in lines.items():
            try:
                self.store.append_lines(rollout_id, group)
            except Exception as exc:  # noqa: BLE001  the SDK's processors swallow it: say it here, and that it failed
                logger.error("otel-gym: %d records of rollout %r are not on disk: %s", len(group), rollout_id, exc)
                result = SpanExportResult.FAILURE
        return result


def is_evidence(evidence: Mapping[str, Any]) -> bool:
    """Whether these span attributes hold a record."""
    return all(name in evidence for name in _REQUIRED)


def line(evidence: Mapping[str, Any], canonical: Collection[object] = ()) -> bytes:
    """The line (with its newline) of the record that these span attributes hold, its keys in the order of the format.

    Args:
        evidence: attributes of a span for which `is_evidence` holds.
        canonical: bodies as `json_text` made them. Where the span still has these very objects they go into the
            line as they are; any other body is parsed and written anew, so that a line is canonical whoever made the
            span.

    Raises:
        ValueError: a value cannot be stored as JSON.
    """
    get = names.plain(evidence).get
    name = get(names.MODEL_REF_NAME)
    request, request_raw = _body(get(names.REQUEST), get(names.REQUEST_RAW), canonical)
    response, response_raw = _body(get(names.RESPONSE), get(names.RESPONSE_RAW), canonical)
    head = {
        "model_call_id": get(names.MODEL_CALL_ID),
        "dialect": get(names.DIALECT),
        "model_ref": None if name is None else {"type": "responses_api_models", "name": name},
        "started_at": get(names.STARTED_AT),
        "completed_at": get(names.COMPLETED_AT),
        "latency_ms": get(names.LATENCY_MS),
        "latency_ttft_ms": get(names.LATENCY_TTFT_MS),
        "status_code": get(names.STATUS_CODE),
        "error_category": get(names.ERROR_CATEGORY),
    }
    tail: dict[str, Any] = {}
    session = get(names.CLIENT_SESSION_ID)
    if session is not None:
        tail["client_session_id"] = session
    nulls = get(names.NULL_KEYS) or ()
    for key in names.OUTCOME_KEYS:
        value = get(names.PREFIX + key)
        if value is not None or key in nulls:
            tail[key] = value
    # Joined once: a body may have hundreds of MB, and each copy of it would be one too many.
    parts = [json_text.dumps(head)[:-1], b',"request":', request, b',"response":', response]
    if tail:
        parts += [b",", json_text.dumps(tail)[1:-1]]
    if request_raw is not None:
        parts += [b',"request_raw":', *json_text.dumps_text(request_raw)]
    if response_raw is not None:
        parts += [b',"response_raw":', *json_text.dumps_text(response_raw)]
    return b"".join([*parts, b"}\n"])


def _body(body: Any, raw: Any, canonical: Collection[object]) -> tuple[bytes, str | None]:
    """The JSON of a body as it goes into the line, and its raw text; what is no JSON object after all is text."""
    raw_text = None if raw is None else _text(raw)
    if body is None:
        return b"null", raw_text
    data = body if isinstance(body, bytes) else str(body).encode("utf-8", "surrogatepass")
    for known in canonical:
        if body is known:
            return data, raw_text
    try:
        value = json_text.loads(data)
        if isinstance(value, dict):
            return json_text.dumps_body(value, len(data)), raw_text
    except ValueError:
        pass  # no JSON, or none that can be stored
    return b"null", raw_text if raw_text is not None else json_text.as_text(data)


def _text(raw: Any) -> str:
    if isinstance(raw, bytes):
        return json_text.as_text(raw)
    text = str(raw)
    return text if text.isascii() else json_text.as_text(text.encode("utf-8", "surrogatepass"))
