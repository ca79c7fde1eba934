"""What a dialect is: the one protocol that the three rooms (`responses`, `chat`, `messages`) keep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from otel_gym.sse import Event

Terminal = Literal["complete", "incomplete", "error"]
"""How a stream ended, as its own terminal event says."""


@dataclass
class Assembly:
    """What a stream amounts to.

    Attributes:
        response: the rebuilt response object, or None where nothing could be rebuilt.
        terminal: how the first terminal event ended the stream, None where there was none.
        unreadable: the terminal event itself could not be parsed or carries no response (divergence 12).
    """

    response: dict[str, Any] | None = None
    terminal: Terminal | None = None
    unreadable: bool = False


class Dialect(Protocol):
    """One model API: its path, its terminal events and how its streams are rebuilt.

    Attributes:
        name: `responses`, `chat` or `messages`, as it stands in the record.
        path: the captured route, without prefix.
        needles: byte strings; every event that could be terminal contains at least one of them. They keep the event
            loop from looking at the others.
    """

    name: str
    path: str
    needles: tuple[bytes, ...]

    def terminal(self, event: Event) -> Terminal | None:
        """How this event ends a stream of this dialect; None where it does not."""

    def assemble(self, events: Iterable[Event]) -> Assembly:
        """Rebuild the response of a whole or broken stream; never raises for what a stream may hold."""
