"""What a dialect is: the one protocol that the three rooms (`responses`, `chat`, `messages`) keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from otel_gym.semconv import AttributeValue
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
    """One model API: its path, its terminal events, how its streams are rebuilt, and what a span says of its calls.

    Attributes:
        name: `responses`, `chat` or `messages`, as it stands in the record.
        path: the captured route, without prefix.
        needles: byte strings; every event that could be terminal contains at least one of them. They keep the event
            loop from looking at the others.
        provider: `gen_ai.provider.name` where nothing better is known: whose API it is.
    """

    name: str
    path: str
    needles: tuple[bytes, ...]
    provider: str

    def terminal(self, event: Event) -> Terminal | None:
        """How this event ends a stream of this dialect; None where it does not."""

    def assemble(self, events: Iterable[Event]) -> Assembly:
        """Rebuild the response of a whole or broken stream; never raises for what a stream may hold."""

    def request_facts(self, request: Mapping[str, Any]) -> dict[str, AttributeValue]:
        """Attributes of `otel_gym.semconv` that a request's object gives, none of them content.

        Of an empty one: what is true of every call. Never raises for what JSON may hold, nor do the other two.
        """

    def response_facts(self, response: Mapping[str, Any]) -> dict[str, AttributeValue]:
        """Attributes that a response's object gives, whole or rebuilt, none of them content."""

    def content(
        self, request: Mapping[str, Any] | None, response: Mapping[str, Any] | None
    ) -> dict[str, str | tuple[str, ...]]:
        """The content attributes (`semconv.CONTENT_ATTRIBUTES`) of a call, of what there is of it."""
