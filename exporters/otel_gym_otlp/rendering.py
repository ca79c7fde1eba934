"""From an entry of the queue to the attributes that its destination gets: profile, redacted content, limits."""

from __future__ import annotations

from typing import Any

from otel_gym_otlp import attributes as names
from otel_gym_otlp import encodable
from otel_gym_otlp.limits import limited
from otel_gym_otlp.profiles import PROFILES
from otel_gym_otlp.redaction import Redaction
from otel_gym_otlp.span_queue import Entry


class Rendering:
    """How one destination wants its spans.

    Args:
        profile: name in `PROFILES`.
        redaction: what content loses.
    """

    def __init__(self, profile: str, redaction: Redaction) -> None:
        self._profile = PROFILES[profile]
        self._redaction = redaction

    def attributes(self, entry: Entry, limits: tuple[int | None, int | None]) -> dict[str, Any]:
        """Encodable, scalars first, content last: where there is a limit, content goes first.

        Raises:
            NotRedactedError: its content must not leave.
        """
        out: dict[str, Any] = {}
        if entry.shed_bytes:
            out[names.SHED_CONTENT_BYTES] = entry.shed_bytes
        out.update(entry.span.attributes)
        self._profile(out)
        content = entry.content  # the queue may take it away meanwhile
        if content is not None:
            out.update(self._redaction.content(encodable.attributes(content)))
        return limited(encodable.attributes(out), *limits)

    def abandon(self) -> None:
        """In a forked child: forget what is the parent's."""
        self._redaction.abandon()
