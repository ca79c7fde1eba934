"""Content attributes as values, checked against the GenAI message schema."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from otel_gym import semconv
from otel_gym.dialects import DIALECTS, Dialect
from tests.dialects.message_schema import SCHEMAS

CHAT, MESSAGES, RESPONSES = (DIALECTS[path] for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"))

PNG = base64.b64encode(b"\x89PNG small").decode()
LARGE = b"\x89PNG large" * 2000
LARGE_URI = "ni:///sha-256;" + base64.urlsafe_b64encode(hashlib.sha256(LARGE).digest()).decode().rstrip("=")


def told(dialect: Dialect, request: Any = None, response: Any = None) -> dict[str, Any]:
    """The content attributes, their JSON read and checked against the schema."""
    content = dialect.content(request, response)
    assert set(content) <= semconv.CONTENT_ATTRIBUTES
    values: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, tuple):
            values[name] = value
            assert all(item.encode() is not None for item in value)
        else:
            value.encode()
            values[name] = json.loads(value)
            SCHEMAS[name].validate_python(values[name])
    return values


def asked(dialect: Dialect, request: dict[str, Any]) -> Any:
    return told(dialect, request)[semconv.INPUT_MESSAGES]


def answered(dialect: Dialect, response: dict[str, Any]) -> Any:
    return told(dialect, None, response)[semconv.OUTPUT_MESSAGES]


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}


def reasoning(content: str) -> dict[str, Any]:
    return {"type": "reasoning", "content": content}
