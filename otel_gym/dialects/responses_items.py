"""The output items of a Responses stream, built from their events.

An item is announced by `output_item.added`, its parts by `content_part.added` (`reasoning_summary_part.added`), its
texts come as deltas, and each has a `done` event with the whole. What was never announced is made by the first delta
that needs it, with no other keys (row 13 of `divergences.md`). A later word replaces an earlier one, except that what
grew in the stream is not given up for something empty.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from otel_gym.dialects.growing import Own, Pieces, gaps, overlay, own, pieces, settle
from otel_gym.dialects.mending import mended


class _Text(NamedTuple):
    """Where the text of a delta event belongs.

    Attributes:
        item: the type of the item that it makes where none was announced.
        path: the keys from the item to what holds the text.
        field: the text's key there, and in the `done` event.
        position: the event's key for the position in the list at the end of `path`, `""` where there is no list.
        part: the type of the part that it makes in that list, `""` where the list holds the texts themselves.
    """

    item: str
    path: tuple[str, ...]
    field: str
    position: str = ""
    part: str = ""


_REASONING = _Text("reasoning", ("content",), "text", "content_index", "reasoning_text")
_SUMMARY = _Text("reasoning", ("summary",), "text", "summary_index", "summary_text")
_TEXTS: Final = {
    "response.output_text": _Text("message", ("content",), "text", "content_index", "output_text"),
    "response.refusal": _Text("message", ("content",), "refusal", "content_index", "refusal"),
    "response.reasoning_text": _REASONING,
    "response.reasoning": _REASONING,
    "response.reasoning_summary_text": _SUMMARY,
    "response.reasoning_summary": _SUMMARY,
    "response.shell_call_command": _Text("shell_call", ("action", "commands"), "command", "command_index"),
    "response.apply_patch_call_operation_diff": _Text("apply_patch_call", ("operation",), "diff"),
}
# function_call_arguments, mcp_call_arguments, custom_tool_call_input, code_interpreter_call_code and what comes after
# them: the item's type, then its field.
_CALL_TEXT: Final = re.compile(r"response\.(\w+_call)[_.](\w+)")
_PARTS: Final = {
    "response.content_part": ("content", "content_index"),
    "response.reasoning_part": ("content", "content_index"),
    "response.reasoning_summary_part": ("summary", "summary_index"),
}
_REASONING_PARTS: Final = ("reasoning_text", "summary_text")


class _Item:
    __slots__ = ("done", "index", "value")

    def __init__(self, index: int, value: dict[str, Any]) -> None:
        self.index = index
        self.value = Own(value)
        self.done = False

    @property
    def id(self) -> str:
        """The item's id, `""` when it has none."""
        value = self.value.get("id")
        return value if isinstance(value, str) else ""


class Items:
    """The items of one response, as far as they have come.

    Attributes:
        streamed: some event of an item's own has been taken.
    """

    def __init__(self) -> None:
        self.streamed = False
        self._items: list[_Item] = []
        self._at: dict[int, _Item] = {}
        self._by_id: dict[str, _Item] = {}

    def output(self) -> list[Any]:
        """The items as plain JSON that can be stored, in the order of their indices."""
        items: list[Any] = mended([settle(item.value) for item in sorted(self._items, key=lambda item: item.index)])
        return items

    def announce(self, output: Any) -> None:
        """Take the items that an envelope lists."""
        if isinstance(output, list):
            for index, value in enumerate(output):
                if isinstance(value, dict):
                    known = self._by_id.get(_id_of(value.get("id")))
                    self._put(known.index if known else index, value)

    def take(self, kind: str, payload: dict[str, Any]) -> None:
        """Take one event; an event of another kind changes nothing."""
        stem, _, verb = kind.rpartition(".")
        if verb == "delta" or (verb == "done" and stem not in _PARTS and stem != "response.output_item"):
            text = _text_of(stem)
            if text is not None:
                self._take_text(text, payload, verb == "delta")
        elif stem == "response.output_item":
            value = payload.get("item")
            if isinstance(value, dict) and verb in ("added", "done"):
                self.streamed = True
                self._put(_index_of(payload.get("output_index")), value).done = verb == "done"
        elif stem in _PARTS:
            part = payload.get("part")
            if isinstance(part, dict) and verb in ("added", "done"):
                self._take_part(*_PARTS[stem], payload, part)
        elif kind == "response.output_text.annotation.added":
            self._take_annotation(payload)

    def _take_text(self, text: _Text, payload: dict[str, Any], is_delta: bool) -> None:
        value = payload.get("delta" if is_delta else text.field)
        if not isinstance(value, str):
            return
        node = self._item_of(payload, text.item).value
        if text.position:
            for key in text.path[:-1]:
                node = own(node, key, {})
            parts = gaps(node, text.path[-1])
            index = _index_of(payload.get(text.position)) or 0
            grown = pieces(own(parts, index, {"type": text.part}), text.field) if text.part else pieces(parts, index)
        else:
            for key in text.path:
                node = own(node, key, {})
            grown = pieces(node, text.field)
        if is_delta:
            grown.append(value)
        elif value or not grown:
            grown[:] = Pieces([value])

    def _take_part(self, key: str, index_key: str, payload: dict[str, Any], part: dict[str, Any]) -> None:
        made = "reasoning" if key == "summary" or part.get("type") in _REASONING_PARTS else "message"
        parts = gaps(self._item_of(payload, made).value, key)
        index = _index_of(payload.get(index_key))
        if index is None:
            index = max(parts) + 1 if parts else 0
        parts[index] = overlay(parts.get(index), part)

    def _take_annotation(self, payload: dict[str, Any]) -> None:
        annotation = payload.get("annotation")
        if isinstance(annotation, dict):
            parts = gaps(self._item_of(payload, "message").value, "content")
            part = own(parts, _index_of(payload.get("content_index")) or 0, {"type": "output_text"})
            annotations = gaps(part, "annotations")
            index = _index_of(payload.get("annotation_index"))
            annotations[len(annotations) if index is None else index] = annotation

    def _item_of(self, payload: dict[str, Any], made: str) -> _Item:
        """The item that an event is about, made where there is none: by index and id, by id, by index."""
        self.streamed = True
        index = _index_of(payload.get("output_index"))
        item_id = _id_of(payload.get("item_id"))
        here = self._at.get(index) if index is not None else None
        named = self._by_id.get(item_id) if item_id else None
        if here is not None and (named is None or not here.id or here.id == item_id):
            return here
        if named is not None:
            return named
        item = self._at.get(index or 0)
        if item is None:
            item = self._add(index or 0, {"type": made})
            if item_id:
                self._by_id[item_id] = item
        return item

    def _put(self, index: int | None, value: dict[str, Any]) -> _Item:
        """Take what an event or an envelope says of a whole item."""
        item_id = _id_of(value.get("id"))
        item = self._at.get(index) if index is not None else None
        if item is not None and item_id and item.id and item.id != item_id:
            item = None  # another item at an index in use
        if item is None and item_id:
            item = self._by_id.get(item_id)
            if item is not None and item.done and index is not None and index != item.index:
                item = None
        if item is None:
            if index is None:
                index = max(self._at) + 1 if self._at else 0
            item = self._add(index, value)
        else:
            item.value = Own(overlay(item.value, value))
        if item_id:
            self._by_id[item_id] = item
        return item

    def _add(self, index: int, value: dict[str, Any]) -> _Item:
        item = _Item(index, value)
        self._items.append(item)
        self._at[index] = item
        return item


def _text_of(stem: str) -> _Text | None:
    text = _TEXTS.get(stem)
    if text is None:
        match = _CALL_TEXT.fullmatch(stem)
        if match is not None:
            text = _Text(match[1], (), match[2])
    return text


def _index_of(value: Any) -> int | None:
    return value if type(value) is int else None


def _id_of(value: Any) -> str:
    return value if isinstance(value, str) else ""
