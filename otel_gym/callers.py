"""Who calls: what harnesses and SDKs say of themselves in headers. A new harness is one row.

Seen by running them; source: the project's field notes, "Agents and SDKs".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from otel_gym import semconv

CALLERS: Final[dict[bytes, str]] = {
    # Codex
    b"session-id": semconv.CALLER_SESSION_ID,
    b"thread-id": semconv.CALLER_AGENT_ID,
    b"x-codex-parent-thread-id": semconv.CALLER_PARENT_ID,
    # Claude Code
    b"x-claude-code-session-id": semconv.CALLER_SESSION_ID,
    b"x-claude-code-agent-id": semconv.CALLER_AGENT_ID,
    # opencode
    b"x-session-id": semconv.CALLER_SESSION_ID,
    b"x-parent-session-id": semconv.CALLER_PARENT_ID,
    # the SDKs of OpenAI and Anthropic
    b"x-stainless-retry-count": semconv.CALLER_RETRY_COUNT,
}
"""Header, in lower case → the attribute that its value becomes. Where two speak of the same, the first counts."""

_MANY_RETRIES: Final = 9  # digits


def caller_facts(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str | int]:
    """What the headers of a request (ASGI's pairs of bytes) say of the caller.

    A header that comes twice with different values says nothing; nor does a retry count that is no number.
    """
    said: dict[bytes, set[str]] = {}
    for name, value in headers:
        key = bytes(name).lower()
        if key in CALLERS:
            said.setdefault(key, set()).add(bytes(value).decode("latin-1").strip())
    facts: dict[str, str | int] = {}
    for key, attribute in CALLERS.items() if said else ():
        values = said.get(key, set()) - {""}
        if attribute not in facts and len(values) == 1:
            text = values.pop()
            if attribute != semconv.CALLER_RETRY_COUNT:
                facts[attribute] = text[: semconv.LONGEST_SEARCHED]
            elif text.isascii() and text.isdigit() and len(text) <= _MANY_RETRIES:
                facts[attribute] = int(text)
    return facts
