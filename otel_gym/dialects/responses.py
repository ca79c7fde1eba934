"""OpenAI Responses: `/v1/responses`.

Lifecycle events carry the whole response (the envelope); the terminal one is nearly always all that a record needs, so
the events before it are not even parsed. Only where the stream broke off, or a completed envelope came without its
items, are the items built from their own events (`responses_items`; `spec/capture.md`, "Streams"; rows 9, 11, 12, 13
and 15 of `divergences.md`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from otel_gym.dialects import responses_content, responses_facts
from otel_gym.dialects.base import Assembly, Terminal
from otel_gym.dialects.content import content_attributes
from otel_gym.dialects.endings import ending
from otel_gym.dialects.responses_items import Items
from otel_gym.semconv import AttributeValue
from otel_gym.sse import Event

_ENDINGS: Final[Mapping[str, Terminal]] = {
    "response.completed": "complete",
    "response.incomplete": "incomplete",
    "response.failed": "error",
    "error": "error",
}
_MARKS: Final = (b"response.completed", b"response.incomplete", b"response.failed", b'"error"')


class Responses:
    """The Responses dialect; see `base.Dialect`."""

    name = "responses"
    path = "/v1/responses"
    needles: tuple[bytes, ...] = (b"response.completed", b"response.incomplete", b"response.failed", b"error")
    provider = "openai"

    def terminal(self, event: Event) -> Terminal | None:
        """`response.completed`, `.incomplete` and `.failed` end a stream as they say, `error` ends it as one."""
        return ending(event, _ENDINGS, _MARKS)

    def assemble(self, events: Iterable[Event]) -> Assembly:
        """The envelope of the first terminal event, else the last one, with its items where it came without them."""
        before: list[Event] = []
        for event in events:
            terminal = ending(event, _ENDINGS, _MARKS)
            if terminal is not None:
                return _ended(before, event, terminal)
            before.append(event)
        return Assembly(_partial(before))

    def request_facts(self, request: Mapping[str, Any]) -> dict[str, AttributeValue]:
        """See `base.Dialect`."""
        return responses_facts.request_facts(request)

    def response_facts(self, response: Mapping[str, Any]) -> dict[str, AttributeValue]:
        """See `base.Dialect`."""
        return responses_facts.response_facts(response)

    def content(
        self, request: Mapping[str, Any] | None, response: Mapping[str, Any] | None
    ) -> dict[str, str | tuple[str, ...]]:
        """See `base.Dialect`."""
        return content_attributes(responses_content, request, response)


def _ended(before: list[Event], event: Event, terminal: Terminal) -> Assembly:
    envelope = _envelope(event.payload)
    if envelope is None:
        # After an error the envelope stays as it came; what an unreadable end leaves is a partial like any other.
        response = _Read(before).envelope if terminal == "error" else _partial(before)
        kind = event.name if event.name in _ENDINGS else event.type
        return Assembly(response, terminal, unreadable=event.error is None and kind.startswith("response."))
    if terminal == "complete" and not _has_items(envelope):
        envelope = _with_items(envelope, _Read(before).items)
    return Assembly(envelope, terminal)


def _partial(events: list[Event]) -> dict[str, Any] | None:
    """What a stream without its end amounts to; None where no event carries an envelope."""
    read = _Read(events)
    return None if read.envelope is None else _with_items(read.envelope, read.items)


def _with_items(envelope: dict[str, Any], items: Items) -> dict[str, Any]:
    output = items.output() if items.streamed else []
    return {**envelope, "output": output} if output else envelope


def _envelope(payload: Any) -> dict[str, Any] | None:
    response = payload.get("response") if isinstance(payload, dict) else None
    return response if isinstance(response, dict) else None


def _has_items(envelope: dict[str, Any]) -> bool:
    output = envelope.get("output")
    return isinstance(output, list) and bool(output)


class _Read:
    """All events of a stream without a usable end, read one by one.

    Attributes:
        envelope: the last envelope, as it came.
        items: the output items, as far as they have come.
    """

    def __init__(self, events: list[Event]) -> None:
        self.envelope: dict[str, Any] | None = None
        self.items = Items()
        self._number: int | None = None
        for event in events:
            payload = event.payload
            if isinstance(payload, dict) and not self._is_replay(payload.get("sequence_number")):
                kind = payload.get("type")
                self._take(kind if isinstance(kind, str) else event.name, payload)

    def _is_replay(self, number: Any) -> bool:
        if type(number) is not int:
            return False
        if self._number is not None and number <= self._number:
            return True
        self._number = number
        return False

    def _take(self, kind: str, payload: dict[str, Any]) -> None:
        envelope = _envelope(payload)
        if envelope is None:
            self.items.take(kind, payload)
            return
        if kind == "response.created" and self.envelope is not None and self._is_another(envelope):
            self.items = Items()  # an upstream that began anew: only the last response counts
        self.envelope = envelope
        self.items.announce(envelope.get("output"))

    def _is_another(self, envelope: dict[str, Any]) -> bool:
        known = self.envelope.get("id") if self.envelope else None
        given = envelope.get("id")
        return known is not None and given is not None and known != given
