"""Anthropic Messages: `/v1/messages`.

The stream is `message_start`, then for each content block `content_block_start`, deltas and `content_block_stop`, then
`message_delta` and `message_stop`, with `ping` and `error` anywhere (Anthropic's "Streaming messages"). What is kept of
it: `spec/capture.md`, "Streams", and rows 2, 9, 10, 11 and 15 of `divergences.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from otel_gym.dialects import messages_content, messages_facts
from otel_gym.dialects.base import Assembly, Terminal
from otel_gym.dialects.content import content_attributes
from otel_gym.dialects.endings import ending
from otel_gym.dialects.growing import Gaps, Own, Pieces, own, pieces, settle
from otel_gym.dialects.mending import mended
from otel_gym.semconv import AttributeValue
from otel_gym.sse import Event, EventStream
from otel_gym_jsonl import json_text

_ENDINGS: Final[Mapping[str, Terminal]] = {"message_stop": "complete", "error": "error"}
_MARKS: Final = (b"message_stop", b'"error"')

_START_FIELDS: Final = ("id", "type", "role", "model", "stop_reason")
_TEXTS: Final = {  # delta: the block it begins where none was started, and the text that it carries
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
}
_CARRIED: Final = {  # what a delta is that does not say its type
    "text": "text_delta",
    "thinking": "thinking_delta",
    "signature": "signature_delta",
    "partial_json": "input_json_delta",
    "citation": "citations_delta",
}

# Where a block stands: its index, and whether its start said so. One whose start had no index (or an odd one) takes the
# next place, and gives it up to none that comes with that index later.
_Place: TypeAlias = tuple[int, int]
_UNINDEXED: Final = 0
_INDEXED: Final = 1


class Messages:
    """The Messages dialect; see `base.Dialect`."""

    name = "messages"
    path = "/v1/messages"
    needles: tuple[bytes, ...] = (b"message_stop", b"error")
    provider = "anthropic"

    def terminal(self, event: Event) -> Terminal | None:
        """`message_stop` completes a stream, `error` ends it as one."""
        return ending(event, _ENDINGS, _MARKS)

    def assemble(self, events: Iterable[Event]) -> Assembly:
        """The message that the events up to the first terminal one build; None where they begin none."""
        message = _Message()
        for event in events:
            payload = event.payload
            if isinstance(payload, dict):
                kind = payload.get("type")
                grown = message.take(kind if isinstance(kind, str) else event.name, payload)
                if kind == event.name and event.error is None and kind not in _ENDINGS:
                    if grown is not None and isinstance(events, EventStream):
                        key, texts = grown
                        texts += events.alike(key, texts[-1])
                    continue  # what `ending` would say too, without a look at the bytes
            terminal = ending(event, _ENDINGS, _MARKS)
            if terminal is not None:
                return Assembly(message.response(), terminal)
        return Assembly(message.response())

    def request_facts(self, request: Mapping[str, Any]) -> dict[str, AttributeValue]:
        """See `base.Dialect`."""
        return messages_facts.request_facts(request)

    def response_facts(self, response: Mapping[str, Any]) -> dict[str, AttributeValue]:
        """See `base.Dialect`."""
        return messages_facts.response_facts(response)

    def content(
        self, request: Mapping[str, Any] | None, response: Mapping[str, Any] | None
    ) -> dict[str, str | tuple[str, ...]]:
        """See `base.Dialect`."""
        return content_attributes(messages_content, request, response)


class _Message:
    """One message, as far as it has come."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._open = False
        self._fields: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: dict[_Place, Own] = {}
        self._inputs: dict[_Place, Pieces] = {}
        self._last: _Place = (0, _INDEXED)  # the block that a delta without an index is about

    def take(self, kind: str, payload: dict[str, Any]) -> tuple[str, Pieces] | None:
        """Take an event; the key of the text that it brought, and where that went, if it brought one."""
        if kind == "content_block_delta":
            delta = payload.get("delta")
            if isinstance(delta, dict):
                return self._grow(self._place_of(payload.get("index")), delta)
        elif kind == "content_block_start":
            block = payload.get("content_block")
            if isinstance(block, dict):
                self._last = self._place_of_new(payload.get("index"))
                self._blocks[self._last] = Own(block)
                self._inputs.pop(self._last, None)
        elif kind == "message_delta":
            self._end(payload)
        elif kind == "message_start":
            self._start(payload.get("message"))
        return None

    def response(self) -> dict[str, Any] | None:
        """The message object; None where nothing began one."""
        if not self._open and not self._blocks:
            return None
        for place, parts in self._inputs.items():
            self._fill_input(self._blocks[place], "".join(parts))
        response = {**self._fields, "content": [settle(self._blocks[place]) for place in sorted(self._blocks)]}
        response.setdefault("type", "message")
        if self._usage:
            response["usage"] = self._usage
        stored: dict[str, Any] = mended(response)
        return stored

    def _start(self, message: Any) -> None:
        if not isinstance(message, dict):
            self._open = True
            return
        known, given = self._fields.get("id"), message.get("id")
        if known is not None and given is not None and known != given:
            self._begin()  # an upstream that began anew: only the last message counts
        self._open = True
        for key in _START_FIELDS:
            value = message.get(key)
            if value is not None:
                self._fields[key] = value
        self._count(message.get("usage"))

    def _end(self, payload: dict[str, Any]) -> None:
        """A `message_delta`: what is known at the end, cumulative."""
        self._count(payload.get("usage"))
        if not self._open:
            return  # as in the reference: such facts belong to a message, and none was begun
        delta = payload.get("delta")
        if isinstance(delta, dict):
            for key, value in delta.items():
                if value is not None and key != "type":  # the type is the delta's own
                    self._fields[key] = value
        context = payload.get("context_management")
        if context is not None:
            self._fields["context_management"] = context

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            for key, value in usage.items():
                self._usage[key] = _later_count(key, self._usage.get(key), value)

    def _place_of(self, index: Any) -> _Place:
        if type(index) is not int:
            return self._last
        place = (index, _INDEXED)
        if place not in self._blocks and (index, _UNINDEXED) in self._blocks:
            return index, _UNINDEXED
        return place

    def _place_of_new(self, index: Any) -> _Place:
        if type(index) is int:
            return index, _INDEXED
        return max(self._blocks)[0] + 1 if self._blocks else 0, _UNINDEXED

    def _grow(self, place: _Place, delta: dict[str, Any]) -> tuple[str, Pieces] | None:
        kind = delta.get("type")
        grown = None
        if not isinstance(kind, str):
            kind = next((_CARRIED[key] for key in delta if key in _CARRIED), "")
        blocks = self._blocks
        if kind in _TEXTS:
            block_type, field = _TEXTS[kind]
            text = delta.get(field)
            if isinstance(text, str):
                block = blocks.get(place)
                if block is None:
                    block = blocks[place] = Own(type=block_type)
                grown = field, pieces(block, field)
                grown[1].append(text)
        elif kind == "input_json_delta":
            text = delta.get("partial_json")
            if isinstance(text, str):
                own(blocks, place, {})
                grown = "partial_json", self._inputs.setdefault(place, Pieces())
                grown[1].append(text)
        elif kind == "citations_delta":
            citation = delta.get("citation")
            if isinstance(citation, dict):
                block = own(blocks, place, {"type": "text"})
                known = block.get("citations")
                if not isinstance(known, Gaps):
                    known = block["citations"] = Gaps(enumerate(known if isinstance(known, list) else ()))
                known[len(known)] = citation
        elif not self._grow_own_kind(place, kind, delta):
            return None
        self._last = place
        return grown

    def _grow_own_kind(self, place: _Place, kind: str, delta: dict[str, Any]) -> bool:
        """A delta named after its block (`compaction_delta`): its texts are the block's texts of the same names."""
        block = self._blocks.get(place)
        block_type = kind.removesuffix("_delta")
        texts = {key: value for key, value in delta.items() if key != "type" and isinstance(value, str)}
        if not texts or not block_type or block_type == kind:
            return False
        if block is None:
            block = self._blocks[place] = Own(type=block_type)
        elif block.get("type") != block_type:
            return False
        for key, value in texts.items():
            pieces(block, key).append(value)
        return True

    @staticmethod
    def _fill_input(block: Own, text: str) -> None:
        if not text or block.get("input"):
            return  # an input that came whole with the block's start stands
        text = json_text.mend_surrogates(text)
        try:
            value = mended(json_text.loads(text.encode()))
            json_text.dumps(value)  # one that cannot be stored would cost the whole message
        except ValueError:
            value = {"_raw": text}
        if value != {} or "type" in block:  # an empty input of a block that nothing announced says nothing
            block["input"] = value


def _later_count(key: str, known: Any, value: Any) -> Any:
    """One usage figure after a later event: cumulative, so that neither a null nor a stray 0 takes one back."""
    if known is None:
        return value
    if value is None:
        return known
    if isinstance(known, dict) and isinstance(value, dict):
        return {inner: _later_count(key, known.get(inner), count) for inner, count in value.items()}
    if _is_number(known):
        if not _is_number(value):
            return known
        if known > 0 and value == 0 and (key == "input_tokens" or key.startswith("cache_")):
            return known
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
