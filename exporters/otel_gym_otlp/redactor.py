"""What patterns match, replaced in content: a class, and the program that `redaction` runs it in.

Python's `re` keeps the interpreter as long as it takes, and some patterns take for ever over some texts. As a program
this has an interpreter of its own, and a limit of CPU time for each content, after which it is ended by a signal. So it
needs nothing but the standard library.
"""

from __future__ import annotations

import json
import marshal
import os
import re
import signal
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

REPLACEMENT = "[redacted]"
MESSAGES, PARTS, TOOLS = "messages", "parts", "tools"
"""Shapes of the GenAI schema that an attribute's JSON may have."""
HEAD = struct.Struct("<Q")
"""In front of each message between the two processes: its length."""

_NO_WORDS: frozenset[str] = frozenset()
# Keys of the schema at one level, each with those of its values that are the schema's own words, or an API's. Every
# other key and value may be somebody's text.
_Level = Mapping[str, frozenset[str]]
_MESSAGE: _Level = {
    "role": frozenset({"system", "developer", "user", "assistant", "tool", "function", "unknown"}),
    "parts": _NO_WORDS,
    "name": _NO_WORDS,
    "finish_reason": frozenset(
        {
            "stop", "length", "content_filter", "tool_call", "tool_calls", "function_call", "error", "unknown",
            "end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "compaction",
            "model_context_window_exceeded", "max_output_tokens",
        }
    ),
}  # fmt: skip
_PART: _Level = {
    "type": frozenset(
        {
            "text", "reasoning", "tool_call", "tool_call_response", "server_tool_call", "server_tool_call_response",
            "blob", "uri", "file", "compaction",
        }
    ),
    "modality": frozenset({"image", "audio", "video", "document"}),
    "mime_type": frozenset(
        {
            "image/png", "image/jpeg", "image/gif", "image/webp", "audio/wav", "audio/mpeg", "audio/flac", "audio/opus",
            "audio/pcm16", "audio/aac", "video/mp4", "application/pdf", "text/plain",
        }
    ),
    **dict.fromkeys(
        (
            "content", "id", "name", "arguments", "response", "is_error", "server_tool_call",
            "server_tool_call_response", "uri", "file_id", "transcript", "filename",
        ),
        _NO_WORDS,
    ),
}  # fmt: skip
_GENERIC: _Level = {"type": frozenset({"generic"}), "generic_type": _NO_WORDS}
_TOOL: _Level = {
    "type": frozenset({"function", "custom"}),
    "name": _NO_WORDS,
    "description": _NO_WORDS,
    "parameters": _NO_WORDS,
}
_MAY_BE_JSON = re.compile(r'\s*[\[{"]')


class Redactor:
    """Replaces what matches in keys, texts and numbers, one at a time.

    JSON is taken apart first, in texts too, so that escapes hide nothing and the structure stays.
    """

    def __init__(self, patterns: Sequence[re.Pattern[str]]) -> None:
        self._patterns = patterns
        self._shapes: dict[str, Callable[[Any], Any]] = {
            MESSAGES: lambda value: self._each(value, self._message),
            PARTS: lambda value: self._each(value, self._part),
            TOOLS: lambda value: self._each(value, lambda tool: self._object(tool, _TOOL)),
        }

    def attribute(self, value: Any, shape: str = "") -> Any:
        """The value of an attribute: JSON text, of this shape or of any, other text, a number, or a list of these."""
        if not isinstance(value, str):
            return self._value(value)
        redacted = self._json(value, self._shapes.get(shape, self._value))
        return self._matched(value) if redacted is None else redacted

    def _json(self, text: str, walk: Callable[[Any], Any]) -> str | None:
        """The text with what its JSON holds redacted, None where it is no JSON; unchanged where nothing matches."""
        if _MAY_BE_JSON.match(text) is None:
            return None
        try:
            value = json.loads(text)
            redacted = walk(value)
            if redacted == value:
                return text
            return json.dumps(redacted, ensure_ascii=False, separators=(",", ":"))
        except (ValueError, RecursionError):
            return None

    def _matched(self, text: str) -> str:
        for pattern in self._patterns:
            text = pattern.sub(REPLACEMENT, text)
        return text

    def _text(self, text: str) -> str:
        return self._matched(self._json(text, self._value) or text)

    def _value(self, value: Any) -> Any:
        """Any JSON value that may be somebody's, whole."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return {self._matched(key): self._value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._value(item) for item in value]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return value
        written = json.dumps(value)
        redacted = self._matched(written)
        return value if redacted == written else redacted

    def _each(self, value: Any, redacted: Callable[[Any], Any]) -> Any:
        return list(map(redacted, value)) if isinstance(value, list) else self._value(value)

    def _message(self, message: Any) -> Any:
        return self._object(message, _MESSAGE)

    def _part(self, part: Any) -> Any:
        known = isinstance(part, dict) and part.get("type") in tuple(_PART["type"])
        return self._object(part, _PART if known else _GENERIC)

    def _object(self, value: Any, level: _Level) -> Any:
        if not isinstance(value, dict):
            return self._value(value)
        out = {}
        for key, item in value.items():
            words = level.get(key)
            if words is None:
                out[self._matched(key)] = self._value(item)
            elif level is _MESSAGE and key == "parts":
                out[key] = self._each(item, self._part)
            else:
                out[key] = item if isinstance(item, str) and item in words else self._value(item)
        return out


# ---------------------------------------------------------------------- the program


def _received(length: int) -> bytes:
    pieces = []
    while length:
        piece = os.read(0, min(length, 1 << 20))
        if not piece:
            sys.exit(0)  # whoever asked has ended
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def _asked() -> Any:
    (length,) = HEAD.unpack(_received(HEAD.size))
    return marshal.loads(_received(length))  # noqa: S302  (both ends of the socket are ours)


def _answer(value: Any) -> None:
    data = marshal.dumps(value)
    rest = memoryview(HEAD.pack(len(data)) + data)
    while rest:
        rest = rest[os.write(0, rest) :]


def _serve() -> None:
    """First the patterns, then one content after the other; both ways over the socket that is standard input."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # what ends a server comes here too, and then it sends its last spans
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    redactor = Redactor([re.compile(pattern, flags) for pattern, flags in _asked()])
    _answer(True)
    while True:
        seconds, values = _asked()
        signal.setitimer(signal.ITIMER_PROF, seconds)
        redacted = [redactor.attribute(value, shape) for shape, value in values]
        signal.setitimer(signal.ITIMER_PROF, 0)
        _answer(redacted)


if __name__ == "__main__":
    _serve()
