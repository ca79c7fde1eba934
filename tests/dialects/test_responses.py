"""Responses streams: what ends them, and when their items are built from their own events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.dialects.base import Assembly, Terminal
from otel_gym.dialects.responses import Responses
from otel_gym.sse import Event, events
from otel_gym_jsonl import json_text

RESPONSES = Responses()


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **fields}


def envelope(kind: str, **fields: Any) -> dict[str, Any]:
    return event(kind, response={"id": "r1", "status": kind, **fields})


def stream(*payloads: Any) -> bytes:
    return b"".join(b"event: %s\ndata: %s\n\n" % (p["type"].encode(), json.dumps(p).encode()) for p in payloads)


def assembled(*payloads: Any) -> Assembly:
    return RESPONSES.assemble(events(stream(*payloads)))


def output_of(*payloads: Any) -> Any:
    """What these events make of the output of a stream that broke off after them."""
    assembly = assembled(CREATED, *payloads)
    assert assembly.terminal is None
    assert assembly.response is not None
    return assembly.response["output"]


CREATED = envelope("created", output=[])
ERROR = {"type": "error", "code": "server_error", "message": "broke"}
MESSAGE = {"type": "message", "id": "m1", "role": "assistant", "status": "in_progress", "content": []}
CALL = {"type": "function_call", "id": "f1", "call_id": "c1", "name": "run", "arguments": ""}


def added(index: Any, item: Any) -> dict[str, Any]:
    return event("output_item.added", output_index=index, item=item)


def item_done(index: Any, item: Any) -> dict[str, Any]:
    return event("output_item.done", output_index=index, item=item)


def part(verb: str, index: Any, value: Any, **fields: Any) -> dict[str, Any]:
    return event(f"content_part.{verb}", output_index=0, content_index=index, part=value, **fields)


def text(value: Any, index: Any = 0, content: Any = 0, **fields: Any) -> dict[str, Any]:
    return event("output_text.delta", output_index=index, content_index=content, delta=value, **fields)


def output_text(value: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": value, **fields}


def message(*parts: Any, **fields: Any) -> dict[str, Any]:
    return {**MESSAGE, **fields, "content": list(parts)}


@pytest.mark.parametrize(
    ("kind", "terminal"), [("completed", "complete"), ("incomplete", "incomplete"), ("failed", "error")]
)
def test_the_envelope_of_the_terminal_event_is_the_response(kind: str, terminal: Terminal) -> None:
    ended = envelope(kind, output=[message(output_text("whole"))], usage=None)

    assert Assembly(ended["response"], terminal) == assembled(CREATED, added(0, MESSAGE), text("par"), ended)


@pytest.mark.parametrize("kind", ["incomplete", "failed"])
def test_only_a_completed_envelope_gets_its_items_from_their_events(kind: str) -> None:
    ended = envelope(kind, output=[])

    assert ended["response"] == assembled(CREATED, added(0, MESSAGE), text("par"), ended).response


@pytest.mark.parametrize("output", [{}, {"output": []}, {"output": None}, {"output": 5}])
def test_a_completed_envelope_without_its_items_gets_those_that_were_streamed(output: dict[str, Any]) -> None:
    ended = envelope("completed", **output, usage={"output_tokens": 3})
    assembly = assembled(CREATED, added(0, MESSAGE), text("a"), text("b"), ended)

    assert Assembly({**ended["response"], "output": [message(output_text("ab"))]}, "complete") == assembly


@pytest.mark.parametrize("output", [{}, {"output": []}, {"output": None}])
def test_a_completed_envelope_stays_as_it_came_where_no_items_were_streamed(output: dict[str, Any]) -> None:
    ended = envelope("completed", **output)

    assert Assembly(ended["response"], "complete") == assembled(CREATED, event("web_search_call.searching"), ended)


@pytest.mark.parametrize("output", [{}, {"output": []}, {"output": None}])
def test_a_stream_that_broke_off_keeps_the_last_envelope_with_what_was_streamed(output: dict[str, Any]) -> None:
    last = envelope("in_progress", **output)

    assert Assembly(last["response"]) == assembled(CREATED, last)
    assert Assembly({**last["response"], "output": [message(output_text("par"))]}) == assembled(
        CREATED, last, added(0, MESSAGE), text("par")
    )


def test_without_an_envelope_there_is_no_response() -> None:
    assert Assembly(None) == assembled(added(0, MESSAGE), text("par"))
    assert Assembly(None, "error") == assembled(added(0, MESSAGE), ERROR)


def test_after_an_error_event_the_envelope_stays_as_it_came() -> None:
    assert Assembly(CREATED["response"], "error") == assembled(CREATED, added(0, MESSAGE), text("par"), ERROR)


@pytest.mark.parametrize(
    "wire",
    [
        b'event: response.completed\ndata: {"type":"response.completed","response":{"id":\n\n',
        b'event: response.completed\ndata: {"type":"response.completed","response":null}\n\n',
        b'event: response.completed\ndata: {"type":"response.completed","response":[]}\n\n',
        b"event: response.completed\n\n",
        b'data: {"type":"response.completed"}\n\n',
    ],
)
def test_a_terminal_event_without_a_readable_response_leaves_the_partial(wire: bytes) -> None:
    body = stream(CREATED, added(0, MESSAGE), text("par"))
    partial = {**CREATED["response"], "output": [message(output_text("par"))]}

    assert Assembly(partial, "complete", unreadable=True) == RESPONSES.assemble(events(body + wire))
    assert Assembly(None, "complete", unreadable=True) == RESPONSES.assemble(events(wire))


def test_a_failed_event_without_its_response_leaves_the_envelope_as_it_came() -> None:
    assembly = assembled(CREATED, text("par"), event("failed", response=None))

    assert Assembly(CREATED["response"], "error", unreadable=True) == assembly


REASONING = {"type": "reasoning", "id": "rs1", "summary": []}


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


@pytest.mark.parametrize(
    "extra",
    [
        added(0, None),
        added("x", 5),
        part("added", 0, None),
        text(5),
        text(None),
        text({"text": "a"}),
        event("output_text.done", output_index=0, content_index=0, text=5),
        event("output_text.annotation.added", output_index=0, content_index=0, annotation=None),
        event("function_call_arguments.delta", output_index=0),
        event("image_generation_call.partial_image", output_index=0, partial_image_b64="AAAA"),
        event("of_next_year.delta", output_index=0, delta="?"),
        {"type": "response.", "delta": "?"},
        {"type": "keepalive"},
    ],
)
def test_an_odd_event_costs_only_itself(extra: dict[str, Any]) -> None:
    before, after = [added(0, MESSAGE), text("a")], [text("b")]

    assert [message(output_text("ab"))] == output_of(*before, extra, *after)


def numbered(payload: dict[str, Any], number: Any) -> dict[str, Any]:
    return {**payload, "sequence_number": number}


def test_an_event_whose_sequence_number_is_not_above_the_last_one_adds_nothing() -> None:
    once = [numbered(p, n) for n, p in enumerate([CREATED, added(0, MESSAGE), text("a"), text("b")])]

    assert [message(output_text("abc"))] == output_of(*once, *once[1:], once[0], numbered(text("c"), 4))


def test_events_without_a_sequence_number_are_never_replays() -> None:
    payloads = [numbered(added(0, MESSAGE), 3), text("a"), numbered(text("b"), None), numbered(text("c"), "1")]

    assert [message(output_text("abc"))] == output_of(*payloads)


def test_items_that_an_envelope_lists_are_announced_by_it() -> None:
    progress = envelope("in_progress", output=[REASONING, message(output_text("He"))])

    assert [REASONING, message(output_text("Hello"))] == output_of(progress, text("llo", 1))


def test_a_later_envelope_has_the_last_word_about_its_items() -> None:
    cancelled = envelope("cancelled", output=[message(output_text("whole"))])

    assert [message(output_text("whole"))] == output_of(added(0, MESSAGE), text("par"), cancelled)
    assert [message(output_text("par"))] == output_of(added(0, MESSAGE), text("par"), envelope("x", output=[MESSAGE]))
    assert [REASONING, message(output_text("par"))] == output_of(
        added(0, REASONING), added(1, MESSAGE), text("par", 1), envelope("x", output=[MESSAGE])
    )


def test_a_response_created_anew_starts_over() -> None:
    again = event("created", response={"id": "r2"})

    assert Assembly({"id": "r2", "output": [{"type": "message", "content": [output_text("b")]}]}) == assembled(
        CREATED, text("a"), again, text("b")
    )


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (b'event: response.completed\ndata: {"response":{}}\n\n', "complete"),
        (b'event: response.incomplete \ndata: {"response":{}}', "incomplete"),
        (b'data: {"type":"response.failed","response":{}}\n\n', "error"),
        (b'data: {"type":\ndata: "response.completed"}\n\n', "complete"),
        (b'event: response.completed\ndata: {"type":"response.in_progress"}\n\n', "complete"),
        (b'event: response.in_progress\ndata: {"type":"response.completed"}\n\n', "complete"),
        (b'event: error\ndata: {"type":"error"}\n\n', "error"),
        (b"event: error\n\n", "error"),
        (b'data: {"type": "error", "message": "x"}\n\n', "error"),
        (b'data: {"error": {"message": "x"}}\n\n', "error"),
        (b'error: {"message": "x"}\n\n', "error"),
        (b'data: {"error": ""}\n\n', None),
        (b'data: {"type":"response.created","response":{"error":null},"error":null}\n\n', None),
        (b'event: response.output_text.delta\ndata: {"delta":"response.completed error"}\n\n', None),
        (b'event: response.cancelled\ndata: {"type":"response.cancelled"}\n\n', None),
        (b"data: [DONE]\n\n", None),
        (b'data: {"type":"response.completed"\n\n', None),
    ],
)
def test_the_terminal_event_is_known_by_name_or_type(wire: bytes, expected: Terminal | None) -> None:
    terminals = [RESPONSES.terminal(event) for event in events(wire)]

    assert [expected] == terminals
    assert expected is None or any(needle in wire for needle in RESPONSES.needles)


def test_what_follows_the_first_terminal_event_changes_nothing() -> None:
    ended = envelope("completed", output=[])
    late = [envelope("failed", id="late"), text("late"), ERROR, envelope("completed", id="second")]

    assert Assembly(ended["response"], "complete") == assembled(CREATED, ended, *late)


class NeverRead(Event):
    """An event whose data must not be parsed."""

    @property
    def payload(self) -> Any:
        raise AssertionError(f"{self.name} was parsed")


def test_events_before_a_whole_envelope_are_not_parsed() -> None:
    ended = envelope("completed", output=[MESSAGE])
    before = [
        NeverRead("response.image_generation_call.partial_image", b'{"partial_image_b64":"AAAA"}'),
        NeverRead("response.output_text.delta", b'{"delta":"an \\"error\\""}'),
        NeverRead("", b'{"type":"response.output_text.delta","delta":"a"}'),
    ]

    assert Assembly(ended["response"], "complete") == RESPONSES.assemble([*before, *events(stream(ended))])


def test_a_surrogate_pair_cut_over_two_deltas_is_joined_and_a_lone_half_replaced() -> None:
    payloads = [text("\ud83d"), text("\ude80"), text("\ude80", 1), item_done(2, message(output_text("\ud83d")))]

    assert ["🚀", "\ufffd", "\ufffd"] == [item["content"][0]["text"] for item in output_of(*payloads)]


def test_reading_the_same_events_twice_gives_the_same_response() -> None:
    progress = envelope("in_progress", output=[message(output_text("a"))])
    once = list(events(stream(CREATED, progress, text("b"), part("added", 1, output_text("c")), text("d", 0, 1))))

    assert RESPONSES.assemble(once) == RESPONSES.assemble(once)


odd = st.sampled_from([None, 5, 1.5, True, "x", "", [], [1], {}, {"a": 1}, -1, 2**70, "\ud800"])


@given(data=st.data())
def test_one_odd_field_never_raises_and_never_spoils_the_text_before_it(data: st.DataObject) -> None:
    payloads = json.loads(
        json.dumps(
            [
                CREATED,
                text("kept", 7),
                added(0, MESSAGE),
                part("added", 0, output_text("", annotations=[])),
                text("a"),
                event("output_text.annotation.added", output_index=0, content_index=0, annotation={"n": 1}),
                event("reasoning_summary_text.delta", output_index=1, summary_index=0, delta="b"),
                event("shell_call_command.delta", output_index=2, command_index=0, delta="b"),
                item_done(0, message(output_text("ab"))),
            ]
        )
    )
    node: Any = data.draw(st.sampled_from(payloads[2:]))
    while True:
        key = data.draw(st.sampled_from(sorted(node)))
        inner = node[key][0] if isinstance(node[key], list) and node[key] else node[key]
        if isinstance(inner, dict) and inner and data.draw(st.booleans()):
            node = inner
            continue
        node[key] = data.draw(odd)
        break
    wire = b"".join(b"data: %s\n\n" % json.dumps(payload).encode() for payload in payloads)
    assembly = RESPONSES.assemble(events(wire))

    assert assembly.response is not None
    assert "r1" == assembly.response["id"]
    assert "kept" in json.dumps(assembly.response["output"])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | st.text(st.characters(), max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "id", "text", "content", "output"]), inner)
    ),
    max_leaves=5,
)
kinds = [
    "created",
    "output_item.added",
    "output_item.done",
    "content_part.added",
    "content_part.done",
    "output_text.delta",
    "output_text.done",
    "output_text.annotation.added",
    "reasoning_summary_part.added",
    "shell_call_command.delta",
    "apply_patch_call_operation_diff.delta",
    "function_call_arguments.delta",
]
keys = ["item", "part", "delta", "text", "output_index", "content_index", "item_id", "annotation", "response", "type"]


@given(
    st.lists(
        st.tuples(st.sampled_from(kinds), st.dictionaries(st.sampled_from(keys), json_values) | json_values), max_size=6
    )
)
def test_no_stream_of_json_values_raises(pairs: list[tuple[str, Any]]) -> None:
    body = [Event(f"response.{name}", json.dumps(payload).encode()) for name, payload in pairs]
    assembly = RESPONSES.assemble([*events(stream(CREATED)), *body])

    assert assembly.response is not None
    assert isinstance(json_text.loads(json_text.dumps(assembly.response.get("output"))), object)


@given(st.binary(max_size=200))
def test_no_bytes_raise(body: bytes) -> None:
    assert isinstance(RESPONSES.assemble(events(stream(CREATED, text("a")) + body)), Assembly)
