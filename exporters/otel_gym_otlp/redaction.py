"""What is taken out of content before it leaves. The local record stays whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from otel_gym_jsonl import json_text

REPLACEMENT = "[redacted]"

# The words of the message schema itself; every other key may be somebody's text (arguments of a tool).
_SCHEMA_KEYS = frozenset(
    {
        "arguments", "content", "description", "file_id", "finish_reason", "id", "mime_type", "modality", "name",
        "parameters", "parts", "properties", "required", "response", "role", "type", "uri",
    }
)  # fmt: skip
_SCHEMA_VALUES = frozenset({"role", "type", "finish_reason", "modality", "mime_type"})


class Redaction:
    """Replaces what matches, in every string of every content attribute.

    Args:
        patterns: regular expressions, searched for in the text itself: JSON is taken apart first, so that escapes
            hide nothing and the structure stays.

    Raises:
        ValueError: a pattern is none.
    """

    def __init__(self, patterns: Iterable[str | re.Pattern[str]]) -> None:
        self._patterns: list[re.Pattern[str]] = []
        for pattern in patterns:
            try:
                self._patterns.append(re.compile(pattern))
            except re.error as exc:
                raise ValueError(f"redaction pattern {pattern!r} is no regular expression: {exc}") from exc

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def content(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """The same attributes without what matches."""
        if not self._patterns:
            return dict(content)
        return {key: self._attribute(value) for key, value in content.items()}

    def _attribute(self, value: Any) -> Any:
        if not isinstance(value, str):
            return self._value(value)
        if value[:1] in ("[", "{"):
            try:
                parsed = json_text.loads(value.encode("utf-8", "surrogatepass"))
                return str(json_text.dumps(self._value(parsed)), "utf-8")
            except (ValueError, RecursionError):
                pass
        return self._text(value)

    def _text(self, text: str) -> str:
        for pattern in self._patterns:
            text = pattern.sub(REPLACEMENT, text)
        return text

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return {
                key if key in _SCHEMA_KEYS else self._text(key): (
                    item if key in _SCHEMA_VALUES and isinstance(item, str) else self._value(item)
                )
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self._value(item) for item in value]
        return value
