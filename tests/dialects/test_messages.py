"""Messages streams: what ends them, and the message that they amount to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.dialects.base import Assembly, Terminal
from otel_gym.dialects.messages import Messages
from otel_gym.sse import Event, events
from otel_gym_jsonl import json_text

MESSAGES = Messages()

START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 40, "output_tokens": 1},
    },
}
END = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}
STOP = {"type": "message_stop"}


def block(index: Any, content_block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": content_block}


def delta(index: Any, change: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": change}


def text(index: Any, value: Any) -> dict[str, Any]:
    return delta(index, {"type": "text_delta", "text": value})


def input_json(index: Any, value: Any) -> dict[str, Any]:
    return delta(index, {"type": "input_json_delta", "partial_json": value})


def stream(*payloads: Any) -> bytes:
    return b"".join(b"event: %s\ndata: %s\n\n" % (p["type"].encode(), json.dumps(p).encode()) for p in payloads)


def assembled(*payloads: Any) -> Assembly:
    return MESSAGES.assemble(events(stream(*payloads)))


def content_of(*payloads: Any) -> list[Any]:
    """What these payloads make of the content of an otherwise ordinary message."""
    response = assembled(START, *payloads, END, STOP).response
    assert response is not None
    content: list[Any] = response["content"]
    return content


TOOL = {"type": "tool_use", "id": "t", "name": "run", "input": {}}


def test_a_whole_stream_gives_the_message_with_the_keys_in_the_order_of_the_reference() -> None:
    assembly = assembled(START, block(0, {"type": "text", "text": ""}), text(0, "Two "), text(0, "fail"), END, STOP)

    assert assembly == Assembly(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "Two fail"}],
            "usage": {"input_tokens": 40, "output_tokens": 7},
        },
        "complete",
    )
    assert assembly.response is not None
    assert ["id", "type", "role", "model", "stop_reason", "content", "usage"] == list(assembly.response)


@pytest.mark.parametrize(
    ("payloads", "expected"),
    [
        pytest.param(
            [block(0, TOOL), input_json(0, '{"a":'), input_json(0, "1}")], [{**TOOL, "input": {"a": 1}}], id="joined"
        ),
        pytest.param([block(0, TOOL)], [TOOL], id="no input at all"),
        pytest.param([block(0, TOOL), input_json(0, "")], [TOOL], id="empty input"),
        pytest.param([block(0, TOOL), input_json(0, '{"a"')], [{**TOOL, "input": {"_raw": '{"a"'}}], id="cut"),
        pytest.param([block(0, TOOL), input_json(0, "[1, 2]")], [{**TOOL, "input": [1, 2]}], id="not an object"),
        pytest.param(
            [block(0, TOOL), input_json(0, '{"a":123456789012345678901}')],
            [{**TOOL, "input": {"_raw": '{"a":123456789012345678901}'}}],
            id="a number that cannot be stored",
        ),
        pytest.param(
            [block(0, {**TOOL, "input": {"a": 1}}), input_json(0, '{"b":2}')],
            [{**TOOL, "input": {"a": 1}}],
            id="input that came whole with the start",
        ),
        pytest.param(
            [block(0, {"type": "mcp_tool_use", "server_name": "db"}), input_json(0, '{"id":3}')],
            [{"type": "mcp_tool_use", "server_name": "db", "input": {"id": 3}}],
            id="another kind of tool",
        ),
        pytest.param(
            [block(0, TOOL), block(1, TOOL), input_json(1, '{"b":'), input_json(0, '{"a":1}'), input_json(1, "2}")],
            [{**TOOL, "input": {"a": 1}}, {**TOOL, "input": {"b": 2}}],
            id="interleaved",
        ),
        pytest.param([input_json(0, "{}")], [{}], id="never announced, empty"),
        pytest.param([input_json(0, '{"a":1}')], [{"input": {"a": 1}}], id="never announced"),
    ],
)
def test_tool_input_is_joined_and_parsed(payloads: list[Any], expected: list[Any]) -> None:
    assert expected == content_of(*payloads)


@pytest.mark.parametrize(
    ("payloads", "expected"),
    [
        pytest.param(
            [
                block(0, {"type": "thinking", "thinking": "", "signature": ""}),
                delta(0, {"type": "thinking_delta", "thinking": "Look "}),
                delta(0, {"type": "thinking_delta", "thinking": "first."}),
                delta(0, {"type": "signature_delta", "signature": "Eq"}),
                delta(0, {"type": "signature_delta", "signature": "oB"}),
            ],
            [{"type": "thinking", "thinking": "Look first.", "signature": "EqoB"}],
            id="thinking and its signature in pieces",
        ),
        pytest.param(
            [
                block(0, {"type": "text", "text": "", "citations": [{"n": 1}]}),
                text(0, "a"),
                delta(0, {"type": "citations_delta", "citation": {"n": 2}}),
                delta(0, {"type": "citations_delta", "citation": None}),
                delta(0, {"type": "citations_delta", "citation": {"n": 3}}),
            ],
            [{"type": "text", "text": "a", "citations": [{"n": 1}, {"n": 2}, {"n": 3}]}],
            id="citations",
        ),
        pytest.param(
            [
                block(0, {"type": "text", "citations": None}),
                delta(0, {"type": "citations_delta", "citation": {"n": 1}}),
            ],
            [{"type": "text", "citations": [{"n": 1}]}],
            id="citations where there was null",
        ),
        pytest.param(
            [
                block(0, {"type": "compaction", "content": None}),
                delta(0, {"type": "compaction_delta", "content": "sum"}),
                delta(0, {"type": "compaction_delta", "content": "mary"}),
            ],
            [{"type": "compaction", "content": "summary"}],
            id="a delta named after its block",
        ),
        pytest.param(
            [
                block(0, {"type": "text", "text": ""}),
                delta(0, {"type": "compaction_delta", "content": "?"}),
                text(0, "a"),
            ],
            [{"type": "text", "text": "a"}],
            id="a delta of another kind of block",
        ),
        pytest.param(
            [block(0, {"type": "text"}), delta(0, {"text": "a"})], [{"type": "text", "text": "a"}], id="no type"
        ),
        pytest.param([block(0, TOOL), text(0, "a")], [{**TOOL, "text": "a"}], id="text for a block of another type"),
        pytest.param(
            [block(0, {"type": "text", "text": "pre"}), text(0, "fix")],
            [{"type": "text", "text": "prefix"}],
            id="prefix",
        ),
        pytest.param(
            [block(3, {"type": "c"}), block(1, {"type": "a"})], [{"type": "a"}, {"type": "c"}], id="out of order"
        ),
        pytest.param(
            [block(0, {"type": "text", "text": "a"}), block(0, {"type": "text", "text": ""}), text(0, "!")],
            [{"type": "text", "text": "!"}],
            id="an index started twice",
        ),
        pytest.param(
            [text(0, "a"), delta(1, {"type": "thinking_delta", "thinking": "b"})],
            [{"type": "text", "text": "a"}, {"type": "thinking", "thinking": "b"}],
            id="never started",
        ),
        pytest.param(
            [block(None, {"type": "text", "text": "n"}), text(None, "o"), block("x", {"type": "text", "text": "t"})],
            [{"type": "text", "text": "no"}, {"type": "text", "text": "t"}],
            id="no index that is one",
        ),
        pytest.param(
            [block(None, {"type": "text", "text": "n"}), block(0, {"type": "text", "text": "z"}), text(0, "!")],
            [{"type": "text", "text": "n"}, {"type": "text", "text": "z!"}],
            id="an index that a block without one has taken",
        ),
        pytest.param(
            [block(None, {"type": "text", "text": "n"}), text(0, "o")],
            [{"type": "text", "text": "no"}],
            id="an index in the deltas only",
        ),
        pytest.param([block(0, None), delta(0, None)], [], id="a start without a block"),
        pytest.param([block(0, None), text(0, "a")], [{"type": "text", "text": "a"}], id="begun by a later delta"),
        pytest.param(
            [block(0, {"type": "text", "text": ""}), text(0, 5), text(0, "a")], [{"type": "text", "text": "a"}], id="5"
        ),
    ],
)
def test_deltas_grow_the_block_at_their_index(payloads: list[Any], expected: list[Any]) -> None:
    assert expected == content_of(*payloads)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("\ud83d", "\ude80", "🚀"),
        ("a\ud83d", "b", "a\ufffdb"),
        ("", "\ude80", "\ufffd"),
        ("a🚀", "\ud83d", "a🚀\ufffd"),
    ],
)
def test_a_surrogate_pair_cut_over_two_deltas_is_joined_and_a_lone_half_replaced(
    first: str, second: str, expected: str
) -> None:
    cut = [input_json(1, '{"t":"' + first), input_json(1, second + '"}')]
    content = content_of(text(0, first), text(0, second), block(1, TOOL), *cut)

    assert [{"type": "text", "text": expected}, {**TOOL, "input": {"t": expected}}] == content


def test_a_surrogate_that_the_tool_input_itself_escapes_is_mended_too() -> None:
    pieces = [input_json(0, '{"t":"\\ud83d'), input_json(0, '\\ude80","u":"\\ud83d"}')]

    assert [{**TOOL, "input": {"t": "🚀", "u": "\ufffd"}}] == content_of(block(0, TOOL), *pieces)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        pytest.param(
            {"input_tokens": 8, "output_tokens": 1},
            {"output_tokens": 5},
            {"input_tokens": 8, "output_tokens": 5},
            id="+",
        ),
        pytest.param({"input_tokens": 8}, {"input_tokens": 9}, {"input_tokens": 9}, id="the later count"),
        pytest.param({"input_tokens": 8}, {"input_tokens": None}, {"input_tokens": 8}, id="a null"),
        pytest.param(
            {}, {"cache_read_input_tokens": None}, {"cache_read_input_tokens": None}, id="a null over nothing"
        ),
        pytest.param({"input_tokens": 8}, {"input_tokens": 0}, {"input_tokens": 8}, id="a 0 on the input side"),
        pytest.param(
            {"cache_read_input_tokens": 8}, {"cache_read_input_tokens": 0}, {"cache_read_input_tokens": 8}, id="cache"
        ),
        pytest.param(
            {"cache_creation": {"a": 4}},
            {"cache_creation": {"a": 0, "b": 1}},
            {"cache_creation": {"a": 4, "b": 1}},
            id="in",
        ),
        pytest.param({"output_tokens": 3}, {"output_tokens": 0}, {"output_tokens": 0}, id="a 0 on the output side"),
        pytest.param({"input_tokens": 8}, {"input_tokens": "x"}, {"input_tokens": 8}, id="no number"),
        pytest.param(
            {"server_tool_use": {"n": 1}}, {"server_tool_use": None}, {"server_tool_use": {"n": 1}}, id="an object"
        ),
        pytest.param({"input_tokens": 8}, [1], {"input_tokens": 8}, id="no object"),
        pytest.param([1], {"output_tokens": 8}, {"output_tokens": 8}, id="no object in the start"),
    ],
)
def test_usage_is_merged_and_never_takes_back_what_is_known(start: Any, end: Any, expected: dict[str, Any]) -> None:
    response = assembled(
        {"type": "message_start", "message": {"id": "msg_1", "usage": start}},
        {"type": "message_delta", "delta": {}, "usage": end},
        STOP,
    ).response

    assert {"id": "msg_1", "content": [], "type": "message", "usage": expected} == response


def test_every_fact_of_the_message_delta_is_kept_unless_it_is_null() -> None:
    response = assembled(
        START,
        {
            "type": "message_delta",
            "delta": {
                "type": "message_delta",
                "stop_reason": "refusal",
                "stop_sequence": None,
                "stop_details": {"category": "c"},
                "container": {"id": "k"},
                "of_next_year": 0,
            },
            "usage": {"output_tokens": 0},
            "context_management": {"applied_edits": []},
        },
        STOP,
    ).response

    assert {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "stop_reason": "refusal",
        "stop_details": {"category": "c"},
        "container": {"id": "k"},
        "of_next_year": 0,
        "context_management": {"applied_edits": []},
        "content": [],
        "usage": {"input_tokens": 40, "output_tokens": 0},
    } == response


def test_a_message_start_with_another_id_starts_over() -> None:
    second = {"type": "message_start", "message": {"id": "msg_2", "role": "assistant", "usage": {"input_tokens": 1}}}
    response = assembled(
        START, text(0, "lost"), block(1, TOOL), input_json(1, "{"), END, second, text(0, "kept"), STOP
    ).response

    assert {
        "id": "msg_2",
        "role": "assistant",
        "content": [{"type": "text", "text": "kept"}],
        "type": "message",
        "usage": {"input_tokens": 1},
    } == response


def test_a_message_start_with_the_same_id_goes_on() -> None:
    response = assembled(START, text(0, "a"), START, text(0, "b"), STOP).response

    assert response is not None
    assert [{"type": "text", "text": "ab"}] == response["content"]


@pytest.mark.parametrize(
    ("payloads", "expected"),
    [
        pytest.param([{"type": "ping"}, STOP], None, id="nothing"),
        pytest.param(
            [text(0, "a"), END, STOP],
            {"content": [{"type": "text", "text": "a"}], "type": "message", "usage": {"output_tokens": 7}},
            id="no start",
        ),
        pytest.param(
            [{"type": "message_start", "message": None}, END, STOP],
            {"stop_reason": "end_turn", "content": [], "type": "message", "usage": {"output_tokens": 7}},
            id="a start without a message",
        ),
    ],
)
def test_a_message_without_its_start_is_what_its_events_say(payloads: list[Any], expected: Any) -> None:
    assert Assembly(expected, "complete") == assembled(*payloads)


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (b'event: message_stop\ndata: {"type":"message_stop"}\n\n', "complete"),
        (b'event:message_stop \ndata: {"type":"message_stop"}', "complete"),
        (b"event: message_stop\n\n", "complete"),
        (b'data: {"type": "message_stop"}\n\n', "complete"),
        (b'data: {"type":\ndata: "message_stop"}\n\n', "complete"),
        (b'event: message\ndata: {"type": "message_stop"}\n\n', "complete"),
        (b'event: content_block_stop\ndata: {"type": "message_stop"}\n\n', "complete"),
        (b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n', "error"),
        (b"event: error\ndata: overloaded\n\n", "error"),
        (b'data: {"type":"error","error":{"type":"api_error"}}\n\n', "error"),
        (b'data: {"error":{"message":"x"}}\n\n', "error"),
        (b'data: {"error":"x"}\n\n', "error"),
        (b'error: {"message":"x"}\n\n', "error"),
        (b'data: {"error":""}\n\n', None),
        (b'data: {"error":null}\n\n', None),
        (b'event: ping\ndata: {"type":"ping","error":{"message":"x"}}\n\n', None),
        (b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"message_stop"}}\n\n', None),
        (b'data: "message_stop"\n\n', None),
        (b'data: {"type":"message_stop"\n\n', None),
        (b": message_stop\n\n", None),
    ],
)
def test_the_terminal_event_is_known_by_name_or_type(wire: bytes, expected: Terminal | None) -> None:
    terminals = [MESSAGES.terminal(event) for event in events(wire)]

    assert [expected] * len(terminals) == terminals
    assert expected is None or terminals
    assert expected is None or any(needle in wire for needle in MESSAGES.needles)


def test_what_follows_the_first_terminal_event_changes_nothing() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error"}}

    assert assembled(START, text(0, "a"), STOP) == assembled(START, text(0, "a"), STOP, text(0, "b"), error, START)
    assert "error" == assembled(START, text(0, "a"), error, text(0, "b"), STOP).terminal


def test_a_stream_without_its_end_keeps_what_came() -> None:
    assembly = assembled(START, block(0, TOOL), input_json(0, '{"cmd":'))

    assert assembly.terminal is None
    assert assembly.response is not None
    assert [{**TOOL, "input": {"_raw": '{"cmd":'}}] == assembly.response["content"]


def test_reading_the_same_events_twice_gives_the_same_message() -> None:
    cite = delta(0, {"type": "citations_delta", "citation": {"n": 1}})
    once = list(
        events(stream(START, block(0, {"type": "text", "text": "a", "citations": []}), text(0, "b"), cite, STOP))
    )

    assert MESSAGES.assemble(once) == MESSAGES.assemble(once)


odd = st.sampled_from([None, 5, 1.5, True, "x", "", [], [1], {}, {"a": 1}, -1, 2**70, "\ud800"])


@given(data=st.data())
def test_one_odd_field_never_raises_and_never_spoils_the_text_before_it(data: st.DataObject) -> None:
    payloads = json.loads(
        json.dumps(
            [
                START,
                text(0, "kept"),
                block(1, TOOL),
                input_json(1, "{}"),
                delta(0, {"type": "citations_delta", "citation": {"n": 1}}),
                delta(2, {"type": "signature_delta", "signature": "s"}),
                END,
            ]
        )
    )
    node: Any = data.draw(st.sampled_from(payloads[2:]))
    while True:
        key = data.draw(st.sampled_from(sorted(node)))
        if isinstance(node[key], dict) and node[key] and data.draw(st.booleans()):
            node = node[key]
            continue
        node[key] = data.draw(odd)
        break
    wire = b"".join(b"data: %s\n\n" % json.dumps(payload).encode() for payload in payloads)
    assembly = MESSAGES.assemble(events(wire))

    assert assembly.response is not None
    assert "msg_1" == assembly.response["id"]
    assert "kept" in json.dumps(assembly.response["content"])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "index", "text", "x"]), inner),
    max_leaves=5,
)
keys = ["type", "index", "delta", "content_block", "message", "usage", "context_management", "error"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "message_start", "content_block_start", "content_block_delta", "message_delta", "x"]),
            st.dictionaries(st.sampled_from(keys), json_values) | json_values,
        ),
        max_size=6,
    )
)
def test_no_stream_of_json_values_raises(pairs: list[tuple[str, Any]]) -> None:
    assembly = MESSAGES.assemble(Event(name, json.dumps(payload).encode()) for name, payload in pairs)

    if assembly.response is not None and "0000000000000000000" not in str(assembly).translate(ZEROS):
        assert json_text.loads(json_text.dumps(assembly.response)) is not None


ZEROS = str.maketrans("123456789", "000000000")


@given(st.binary(max_size=200))
def test_no_bytes_raise(body: bytes) -> None:
    assert isinstance(MESSAGES.assemble(events(stream(START, text(0, "a")) + body)), Assembly)
