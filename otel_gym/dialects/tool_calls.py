"""Tool calls of a chat stream, put together from their pieces (`divergences.md`, row 6)."""

from __future__ import annotations

from typing import Any, TypeGuard

from otel_gym.dialects.mending import mended


def is_index(value: Any) -> TypeGuard[int]:
    """An index that a stream may give: an int of 64 bits, no bool."""
    return value.__class__ is int and -(2**63) <= value < 2**63


class FunctionCall:
    """A name and arguments, each in pieces."""

    __slots__ = ("_name", "_name_length", "arguments")

    def __init__(self) -> None:
        self._name: list[str] = []
        self._name_length = 0
        self.arguments: list[str] = []

    def add(self, piece: dict[str, Any], *, repeats: bool = False) -> None:
        """Take a piece; with `repeats`, a name in it says again what is known."""
        name = piece.get("name")
        if isinstance(name, str) and not (self._name_length and (repeats or self._is_name_so_far(name))):
            self._name.append(name)
            self._name_length += len(name)
        arguments = piece.get("arguments")
        if isinstance(arguments, str):
            self.arguments.append(arguments)

    def build(self) -> dict[str, str]:
        return {"name": mended("".join(self._name)), "arguments": mended("".join(self.arguments))}

    def _is_name_so_far(self, piece: str) -> bool:
        # Some servers repeat the whole name in every piece.
        if len(piece) != self._name_length:
            return False
        self._name = ["".join(self._name)]
        return self._name[0] == piece


class ToolCalls:
    """The tool calls of one message."""

    def __init__(self) -> None:
        self._calls: list[_ToolCall] = []
        self._at_index: dict[int, _ToolCall] = {}  # the call that pieces of an index go to
        self._by_id: dict[str, _ToolCall] = {}
        self._last: _ToolCall | None = None

    def add(self, piece: dict[str, Any]) -> None:
        """Take one item of a delta's `tool_calls`."""
        own_id = piece.get("id")
        if not isinstance(own_id, str):
            own_id = None
        index = piece.get("index")
        call = self._last = self._at(index, own_id) if is_index(index) else self._without_index(own_id)
        if own_id:
            call.id = own_id
            self._by_id[own_id] = call
        elif own_id == "" and call.id is None:
            call.id = ""
        function = piece.get("function")
        if isinstance(function, dict):
            call.function.add(function, repeats=own_id == "")

    def build(self) -> list[dict[str, Any]]:
        """The calls by index; one without an index follows the call that was there before it."""
        return [call.build() for call in sorted(self._calls, key=lambda call: call.position)]

    def _at(self, index: int, own_id: str | None) -> _ToolCall:
        call = self._at_index.get(index)
        if call is not None and own_id and call.id and own_id != call.id:
            known = self._by_id.get(own_id)
            call = known if known is not None and known.position == index else None
        if call is None:
            call = self._begin(index)
        self._at_index[index] = call
        return call

    def _without_index(self, own_id: str | None) -> _ToolCall:
        call = self._by_id.get(own_id) if own_id else self._last
        if call is None:
            call = self._begin(self._calls[-1].position if self._calls else -(2**63))
        return call

    def _begin(self, position: int) -> _ToolCall:
        call = _ToolCall(position)
        self._calls.append(call)
        return call


class _ToolCall:
    __slots__ = ("function", "id", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.id: str | None = None
        self.function = FunctionCall()

    def build(self) -> dict[str, Any]:
        # The reference knows no other type.
        return {"id": mended(self.id), "type": "function", "function": self.function.build()}
