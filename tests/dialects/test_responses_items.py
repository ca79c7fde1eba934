"""Items of Responses streams, built from their own events where no envelope holds them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.responses_events import (
    CALL,
    MESSAGE,
    REASONING,
    added,
    event,
    item_done,
    message,
    output_of,
    output_text,
    part,
    text,
)


@pytest.mark.parametrize(
    ("payloads", "expected"),
    [
        pytest.param([added(0, MESSAGE)], [MESSAGE], id="an item alone"),
        pytest.param([item_done(0, message(output_text("a")))], [message(output_text("a"))], id="done alone"),
        pytest.param(
            [added(0, MESSAGE), part("added", 0, output_text("", annotations=[])), text("a"), text("b")],
            [message(output_text("ab", annotations=[]))],
            id="text of an announced part",
        ),
        pytest.param(
            [added(0, MESSAGE), text("a"), part("added", 1, output_text("")), text("b", 0, 1), text("c", 0, 1)],
            [message(output_text("a"), output_text("bc"))],
            id="two parts, one announced",
        ),
        pytest.param(
            [added(0, message(output_text("pre"))), text("fix")],
            [message(output_text("prefix"))],
            id="text that goes on",
        ),
        pytest.param(
            [added(0, MESSAGE), text("par"), event("output_text.done", output_index=0, content_index=0, text="whole")],
            [message(output_text("whole"))],
            id="the whole text",
        ),
        pytest.param(
            [added(0, MESSAGE), text("par"), event("output_text.done", output_index=0, content_index=0, text="")],
            [message(output_text("par"))],
            id="an empty whole",
        ),
        pytest.param(
            [added(0, MESSAGE), text("par"), part("done", 0, output_text("whole", annotations=[{"n": 1}]))],
            [message(output_text("whole", annotations=[{"n": 1}]))],
            id="the whole part",
        ),
        pytest.param(
            [added(0, MESSAGE), text("par"), part("done", 0, output_text("", annotations=[]))],
            [message(output_text("par", annotations=[]))],
            id="an empty whole part",
        ),
        pytest.param(
            [added(0, MESSAGE), text("par"), item_done(0, message(output_text("whole"), status="completed"))],
            [message(output_text("whole"), status="completed")],
            id="the whole item",
        ),
        pytest.param(
            [added(0, MESSAGE), text("par"), item_done(0, message(status="completed"))],
            [message(output_text("par"), status="completed")],
            id="a whole item without its parts",
        ),
        pytest.param(
            [added(0, MESSAGE), text("par"), item_done(0, {"type": "message", "id": "m1"})],
            [{"type": "message", "id": "m1", "content": [output_text("par")]}],
            id="a whole item without a list of parts",
        ),
        pytest.param([text("a"), text("b")], [{"type": "message", "content": [output_text("ab")]}], id="unannounced"),
        pytest.param(
            [event("output_text.delta", delta="a"), event("output_text.delta", delta="b", output_index=None)],
            [{"type": "message", "content": [output_text("ab")]}],
            id="no indices",
        ),
        pytest.param(
            [text("b", 1, 1), text("a", 1, 0), text("z", 0)],
            [
                {"type": "message", "content": [output_text("z")]},
                {"type": "message", "content": [output_text("a"), output_text("b")]},
            ],
            id="unannounced, out of order",
        ),
        pytest.param(
            [text("par"), added(0, MESSAGE), text("tial")], [message(output_text("partial"))], id="announced too late"
        ),
        pytest.param(
            [added(0, CALL), event("function_call_arguments.delta", item_id="f1", delta="{")],
            [{**CALL, "arguments": "{"}],
            id="by the item's id",
        ),
        pytest.param(
            [added(0, MESSAGE), added(1, CALL), event("function_call_arguments.delta", item_id="f1", delta="{")],
            [MESSAGE, {**CALL, "arguments": "{"}],
            id="by the item's id, not the first",
        ),
        pytest.param(
            [added(0, MESSAGE), text("a", item_id="another")], [message(output_text("a"))], id="an id that nobody knows"
        ),
        pytest.param(
            [added(0, MESSAGE), added(0, {**MESSAGE, "id": "m2"}), text("b", item_id="m2"), text("a", item_id="m1")],
            [message(output_text("a")), message(output_text("b"), id="m2")],
            id="two items at one index",
        ),
        pytest.param(
            [event("output_item.added", item=MESSAGE), event("output_item.added", item=CALL)],
            [MESSAGE, CALL],
            id="items without an index",
        ),
        pytest.param(
            [
                added(0, MESSAGE),
                part("added", 0, output_text("", annotations=[])),
                event(
                    "output_text.annotation.added", output_index=0, content_index=0, annotation_index=0, annotation={}
                ),
                event("output_text.annotation.added", output_index=0, content_index=0, annotation={"n": 2}),
            ],
            [message(output_text("", annotations=[{}, {"n": 2}]))],
            id="annotations",
        ),
        pytest.param(
            [
                added(0, REASONING),
                event(
                    "reasoning_summary_part.added",
                    output_index=0,
                    summary_index=0,
                    part={"type": "summary_text", "text": ""},
                ),
                event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="why"),
                event("reasoning_summary_text.delta", output_index=0, summary_index=1, delta="so"),
                event("reasoning_text.delta", output_index=0, content_index=0, delta="raw"),
            ],
            [
                {
                    **REASONING,
                    "summary": [{"type": "summary_text", "text": "why"}, {"type": "summary_text", "text": "so"}],
                    "content": [{"type": "reasoning_text", "text": "raw"}],
                }
            ],
            id="reasoning",
        ),
        pytest.param(
            [
                event("content_part.added", output_index=0, part={"type": "reasoning_text", "text": "a"}),
                event("content_part.added", output_index=1, part={"type": "refusal", "refusal": "no"}),
            ],
            [
                {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "a"}]},
                {"type": "message", "content": [{"type": "refusal", "refusal": "no"}]},
            ],
            id="parts of unannounced items",
        ),
    ],
)
def test_items_are_built_from_their_events(payloads: list[Any], expected: list[Any]) -> None:
    assert expected == output_of(*payloads)


@pytest.mark.parametrize(
    ("kind", "field", "expected"),
    [
        ("output_text", "text", {"type": "message", "content": [{"type": "output_text", "text": "ab"}]}),
        ("refusal", "refusal", {"type": "message", "content": [{"type": "refusal", "refusal": "ab"}]}),
        ("reasoning_text", "text", {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "ab"}]}),
        ("reasoning_summary_text", "text", {"type": "reasoning", "summary": [{"type": "summary_text", "text": "ab"}]}),
        ("function_call_arguments", "arguments", {"type": "function_call", "arguments": "ab"}),
        ("mcp_call_arguments", "arguments", {"type": "mcp_call", "arguments": "ab"}),
        ("custom_tool_call_input", "input", {"type": "custom_tool_call", "input": "ab"}),
        ("code_interpreter_call_code", "code", {"type": "code_interpreter_call", "code": "ab"}),
        ("code_interpreter_call.code", "code", {"type": "code_interpreter_call", "code": "ab"}),
        ("shell_call_command", "command", {"type": "shell_call", "action": {"commands": ["ab"]}}),
        ("apply_patch_call_operation_diff", "diff", {"type": "apply_patch_call", "operation": {"diff": "ab"}}),
    ],
)
def test_an_unannounced_text_makes_its_item_by_the_name_of_the_event(
    kind: str, field: str, expected: dict[str, Any]
) -> None:
    pieces = [event(f"{kind}.delta", output_index=2, delta="a"), event(f"{kind}.delta", output_index=2, delta="b")]
    done = event(f"{kind}.done", output_index=2, **{field: "ab"})

    assert [expected] == output_of(*pieces)
    assert [expected] == output_of(*pieces, done)
    assert [expected] == output_of(done)
