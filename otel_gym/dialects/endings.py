"""What ends a stream, in any dialect whose events have names.

The name of the event says it, or the `type` inside its data, which is all there is when the `event:` line is missing
(row 15 of `divergences.md`). A field named `error` (row 29), and data that is nothing but an `error`, are errors too.
"""

from __future__ import annotations

from collections.abc import Mapping

from otel_gym.dialects.base import Terminal
from otel_gym.sse import Event


def ending(event: Event, endings: Mapping[str, Terminal], marks: tuple[bytes, ...]) -> Terminal | None:
    """How an event ends its stream, None where it does not.

    Args:
        event: any event of the stream.
        endings: how each terminal event ends the stream, by its name.
        marks: byte strings of which the data of every terminal event holds one; data without any is not parsed.
    """
    if event.error is not None:
        return "error"
    named = endings.get(event.name)
    if named is not None:
        return named
    data = event.data
    for mark in marks:
        if mark in data:
            break
    else:
        return None
    payload = event.payload
    if not isinstance(payload, dict):
        return None
    kind = payload.get("type")
    if isinstance(kind, str):
        return endings.get(kind)
    error = payload.get("error")
    if event.name in ("", "message") and (isinstance(error, dict) or (isinstance(error, str) and error)):
        return "error"
    return None
