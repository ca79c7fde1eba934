"""Responses streams: what ends them, and when their items are built from their own events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.dialects.base import Assembly, Terminal
from otel_gym.sse import Event, events
from otel_gym_jsonl import json_text
from tests.dialects.responses_events import (
    CREATED,
    ERROR,
    MESSAGE,
    REASONING,
    RESPONSES,
    added,
    assembled,
    envelope,
    event,
    item_done,
    message,
    output_of,
    output_text,
    part,
    stream,
    text,
)


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

    # Row 13 speaks of the items that are put in; without any, the corpus has the envelope as it came, `output` or not.
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
