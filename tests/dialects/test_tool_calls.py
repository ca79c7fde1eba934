"""Tool calls put together from the pieces of a stream."""

from __future__ import annotations

from typing import Any

import pytest

from otel_gym.dialects.tool_calls import ToolCalls

GONE = object()


def piece(index: Any = GONE, own_id: Any = GONE, name: Any = GONE, arguments: Any = GONE) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not GONE}
    around = {key: value for key, value in (("index", index), ("id", own_id)) if value is not GONE}
    return {**around, "function": function}


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([piece(0, "a", "f", "{"), piece(0, arguments="}")], [("a", "f", "{}")]),
        ([piece(1, "b", "g", ""), piece(0, "a", "f", ""), piece(1, arguments="1")], [("a", "f", ""), ("b", "g", "1")]),
        ([piece(7, "b", "g"), piece(2, "a", "f")], [("a", "f", ""), ("b", "g", "")]),
        # the id comes late, never, or empty
        ([piece(0, name="f"), piece(0, "a", arguments="{}")], [("a", "f", "{}")]),
        ([piece(0, name="f", arguments="{}")], [(None, "f", "{}")]),
        ([piece(0, "", "f", "{}")], [("", "f", "{}")]),
        ([piece(0, "", "f", "{"), piece(0, "a", arguments="}")], [("a", "f", "{}")]),
        ([piece(0, "a", "f", "{"), piece(0, "", arguments="}")], [("a", "f", "{}")]),
        # without an index
        (
            [piece(None, "a", "f", "{"), piece(None, arguments="}"), piece(None, "b", "g", "1")],
            [("a", "f", "{}"), ("b", "g", "1")],
        ),
        (
            [
                piece(own_id="a", name="f"),
                piece(own_id="", arguments="1"),
                piece(own_id="b", name="g"),
                piece(arguments="2"),
            ],
            [("a", "f", "1"), ("b", "g", "2")],
        ),
        (
            [piece(own_id="b", name="f"), piece(own_id="a", name="g"), piece(own_id="b", arguments="1")],
            [("b", "f", "1"), ("a", "g", "")],
        ),
        ([piece(name="f", arguments="{"), piece(arguments="}")], [(None, "f", "{}")]),
        ([piece("0", "a", "f"), piece(0, "b", "g")], [("a", "f", ""), ("b", "g", "")]),
        ([piece(0, "a", "f", "{"), piece(None, arguments="}")], [("a", "f", "{}")]),
        (
            [piece(1, "b", "g"), piece(None, "c", "h"), piece(0, "a", "f")],
            [("a", "f", ""), ("b", "g", ""), ("c", "h", "")],
        ),
        # another id at an index in use
        (
            [piece(0, "a", "f", "1"), piece(0, "b", "g", "2"), piece(0, arguments="3")],
            [("a", "f", "1"), ("b", "g", "23")],
        ),
        ([piece(0, "a", "f", "1"), piece(0, "a", arguments="2")], [("a", "f", "12")]),
        (
            [piece(0, "a", "f", "1"), piece(0, "b", "g", "2"), piece(0, "a", arguments="3")],
            [("a", "f", "13"), ("b", "g", "2")],
        ),
        ([piece(0, "a", "f"), piece(1, "a", "g")], [("a", "f", ""), ("a", "g", "")]),
        # names in pieces, and repeated
        ([piece(0, "a", "list_"), piece(0, name="users")], [("a", "list_users", "")]),
        ([piece(0, "a", "list_"), piece(0, "a", name="users")], [("a", "list_users", "")]),
        (
            [piece(0, "a", "f", ""), piece(0, name="f", arguments="1"), piece(0, name="f", arguments="2")],
            [("a", "f", "12")],
        ),
        ([piece(0, "a", "list_"), piece(0, name="users"), piece(0, name="list_users")], [("a", "list_users", "")]),
        ([piece(0, "a", "f"), piece(0, "", "other")], [("a", "f", "")]),
        # one odd field costs only itself
        ([piece(0, "a", "f", {"x": 1})], [("a", "f", "")]),
        ([piece(0, 5, ["f"], "{}")], [(None, "", "{}")]),
        ([{"index": 0, "id": "a", "function": None}], [("a", "", "")]),
        ([{"index": True, "id": "a", "function": "f"}], [("a", "", "")]),
        # halves of a surrogate pair
        ([piece(0, "a", "f", "\ud83d"), piece(0, arguments="\ude80")], [("a", "f", "🚀")]),
        ([piece(0, "a\ud83d", "f\ud83d", "\ud83d")], [("a\ufffd", "f\ufffd", "\ufffd")]),
    ],
)
def test_pieces_make_calls(pieces: list[dict[str, Any]], expected: list[tuple[str | None, str, str]]) -> None:
    calls = ToolCalls()
    for one in pieces:
        calls.add(one)
    assert [
        {"id": own_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for own_id, name, arguments in expected
    ] == calls.build()
