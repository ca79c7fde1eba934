"""Chat streams: how they end, and the completion that their chunks amount to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.dialects.base import Assembly
from otel_gym.dialects.chat import Chat
from otel_gym.sse import Event, events
from otel_gym_jsonl import json_text

DONE = "[DONE]"
ODD = [None, True, 0, -1, 1.5, 10**30, "", "text", "\ud83d", [], [None], [1, "a"], {}, {"x": None}, {"text": "t"}]


def assemble(*chunks: Any) -> Assembly:
    """The assembly of a stream with these data lines; what is no text is written as JSON."""
    lines = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks]
    return Chat().assemble(events("".join(f"data: {line}\n\n" for line in lines).encode("utf-8", "surrogatepass")))


def chunk(delta: Any = None, finish_reason: Any = None, *, index: Any = 0, **choice: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta if delta is not None else {}, "finish_reason": finish_reason, **choice}
    return {"id": "c1", "model": "m", "choices": [choice]}


def only_choice(*chunks: Any) -> dict[str, Any]:
    response = assemble(*chunks, DONE).response
    assert response is not None
    (choice,) = response["choices"]
    assert isinstance(choice, dict)
    return choice


def message(*deltas: Any) -> dict[str, Any]:
    answer = only_choice(*map(chunk, deltas))["message"]
    assert isinstance(answer, dict)
    assert answer.pop("role") == "assistant"
    return answer


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Event("", b"[DONE]"), "complete"),
        (Event("x", b" [DONE] \n"), "complete"),
        (Event("", b"[done]"), None),
        (Event("", b'"[DONE]"'), None),
        (Event("error", b""), "error"),
        (Event("error", b"[DONE]"), "error"),
        (Event("", b"", b'{"code":1}'), "error"),
        (Event("", b'{"error":{}}'), "error"),
        (Event("", b'{"error":"x"}'), "error"),
        (Event("", b'{"error":""}'), None),
        (Event("", b'{"error":null}'), None),
        (Event("", b'{"error":[1]}'), None),
        (Event("", b'{"error":true}'), None),
        (Event("", b'{"type":"error"}'), "error"),
        (Event("message", b'{"type":"error"}'), "error"),
        (Event("", b'{"choices":[{"delta":{"content":"error"}}]}'), None),
        (Event("", b'"error"'), None),
        (Event("", b"{error"), None),
    ],
)
def test_done_completes_and_whatever_says_error_is_one(event: Event, expected: str | None) -> None:
    assert expected == Chat().terminal(event)
    assert expected == Chat().assemble([event]).terminal


def test_a_completion_has_the_keys_of_the_reference_in_its_order() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    deltas = ({"role": "assistant", "content": ""}, {"reasoning_content": "r"}, {"content": "x"}, {"refusal": "n"})
    chunks = [*map(chunk, deltas), chunk({"tool_calls": [call]}), chunk({}, "stop")]
    expected = (
        '{"object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"x",'
        '"reasoning_content":"r","refusal":"n","tool_calls":[{"id":"a","type":"function","function":{"name":"f",'
        '"arguments":"{}"}}]},"finish_reason":"stop"}],"id":"c1",'
        '"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}'
    )
    assembly = assemble(*chunks, {"id": "c1", "choices": [], "usage": usage}, DONE)
    assert expected == json_text.dumps(assembly.response).decode()
    assert (assembly.terminal, assembly.unreadable) == ("complete", False)


@pytest.mark.parametrize(
    "chunks", [(), (DONE,), ({"id": "u", "choices": [], "usage": {"a": 1}},), ({"choices": [None]},)]
)
def test_without_a_choice_there_is_no_completion(chunks: tuple[Any, ...]) -> None:
    assert assemble(*chunks).response is None


@pytest.mark.parametrize(
    ("end", "terminal"), [((), None), ((DONE,), "complete"), (({"error": {"message": "x"}},), "error")]
)
def test_a_stream_keeps_what_it_had_however_it_ends(end: tuple[Any, ...], terminal: str | None) -> None:
    assembly = assemble(chunk({"content": "par"}), *end)
    assert terminal == assembly.terminal
    assert assembly.response is not None
    assert [{"index": 0, "message": {"role": "assistant", "content": "par"}, "finish_reason": None}] == (
        assembly.response["choices"]
    )


def test_the_first_terminal_event_decides_and_its_own_content_counts() -> None:
    last = chunk({"content": "half"}) | {"error": {"message": "mid"}}
    assembly = assemble(last, chunk({"content": " rest"}, "stop"), DONE)
    assert assembly == assemble(last)
    assert assembly.terminal == "error"
    assert assembly.response is not None
    assert assembly.response["choices"][0]["message"]["content"] == "half"
    assert assemble(chunk({"content": "a"}), DONE) == assemble(chunk({"content": "a"}), DONE, chunk({"content": "b"}))


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([{}], {"content": None}),
        ([{"content": None}, {"content": ""}], {"content": None}),
        ([{"content": "a"}, {"content": "b"}], {"content": "ab"}),
        ([{"content": "\ud83d"}, {"content": "\ude00"}], {"content": "😀"}),
        ([{"content": "\ud83d"}, {"content": "x"}], {"content": "\ufffdx"}),
        ([{"reasoning": "a"}, {"reasoning_content": "b"}], {"content": None, "reasoning_content": "ab"}),
        ([{"reasoning_content": "a", "reasoning": "a"}], {"content": None, "reasoning_content": "a"}),
        ([{"reasoning": "a", "reasoning_content": ""}], {"content": None, "reasoning_content": "a"}),
        ([{"reasoning": "a", "reasoning_content": [1]}], {"content": None, "reasoning_content": "a"}),
        ([{"content": [{"type": "text", "text": "a"}, "b", {"text": "c"}]}], {"content": "abc"}),
        ([{"content": [{"type": "text"}, None, {"type": "image_url", "text": "x"}, {"type": 1}]}], {"content": None}),
        (
            [
                {"content": [{"type": "thinking", "thinking": "a"}, {"type": "reasoning", "text": "b"}]},
                {"content": "c"},
            ],
            {"content": "c", "reasoning_content": "ab"},
        ),
        (
            [{"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}, {"x": 1}, "b"]}]}],
            {"content": None, "reasoning_content": "ab"},
        ),
        ([{"content": [{"type": "refusal", "refusal": "no"}]}], {"content": None, "refusal": "no"}),
        (
            [{"function_call": {"name": "f", "arguments": ""}}, {"function_call": {"arguments": "{}"}}],
            {"content": None, "function_call": {"name": "f", "arguments": "{}"}},
        ),
        ([{"tool_calls": ["bad", None], "content": "x"}], {"content": "x"}),
        ([{"content": {"text": "odd"}}, {"content": 5}, "text", None, {"content": "x"}], {"content": "x"}),
    ],
)
def test_deltas_add_up_to_a_message(deltas: list[Any], expected: dict[str, Any]) -> None:
    assert expected == message(*deltas)


def test_metadata_chunks_neither_rename_nor_empty_the_answer() -> None:
    expected = assemble(chunk({"content": "Hi"}), chunk({}, "stop"), DONE)
    empty = {"id": "", "model": "", "choices": []}
    odd_choice = {"index": 0, "finish_reason": None, "content_filter_offsets": {"check_offset": 1}}
    assert expected == assemble(
        empty, chunk({"content": "Hi"}), empty | {"choices": [odd_choice], "usage": None}, chunk({}, "stop"), DONE
    )


@pytest.mark.parametrize(
    ("ids", "expected"),
    [(("", "b"), "b"), (("a", ""), "a"), (("a", "b"), "b"), (("", 5), ""), (("a", None), "a")],
)
def test_the_last_id_that_says_something_counts(ids: tuple[Any, ...], expected: str) -> None:
    assembly = assemble(*({"id": own_id, "choices": [{}]} for own_id in ids))
    assert assembly.response is not None
    assert expected == assembly.response["id"]


def test_choices_stay_apart_in_the_order_of_their_index() -> None:
    response = assemble(
        chunk({"content": "right "}, index=1),
        {"choices": [{"index": 0, "delta": {"content": "left "}}, {"index": 1, "delta": {"content": "two"}}]},
        chunk({"content": "one"}, "stop"),
        chunk({}, "length", index=1),
        DONE,
    ).response
    assert response is not None
    assert [(0, "left one", "stop"), (1, "right two", "length")] == [
        (choice["index"], choice["message"]["content"], choice["finish_reason"]) for choice in response["choices"]
    ]


@pytest.mark.parametrize("index", [None, "1", True, 1.0, 10**30, [1]])
def test_a_choice_without_a_usable_index_goes_by_its_place(index: Any) -> None:
    response = assemble(
        {"choices": [{"delta": {"content": "a"}}, {"index": index, "delta": {"content": "b"}}]}
    ).response
    assert response is not None
    assert [(0, "a"), (1, "b")] == [(c["index"], c["message"]["content"]) for c in response["choices"]]


@pytest.mark.parametrize(
    ("reasons", "expected"), [(("length", None), "length"), (("stop", ""), "stop"), ((5, [1]), None), (("a", "b"), "b")]
)
def test_the_last_finish_reason_that_says_something_counts(reasons: tuple[Any, ...], expected: str | None) -> None:
    assert expected == only_choice(*(chunk({}, reason) for reason in reasons))["finish_reason"]


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ([{"usage": {"a": 1}}, {"usage": {"a": 2}}], {"a": 2}),
        ([{"usage": {"a": 1}}, {"usage": {}}, {"usage": None}, {"usage": [1]}], {"a": 1}),
        ([{"choices": [{"usage": {"a": 1}}]}, {"choices": [{"usage": None}]}], {"a": 1}),
        ([{"usage": {"a": 1}}, {"choices": [{"usage": {"a": 2}}]}], {"a": 1}),
        ([{"choices": [{}, {"index": 1, "usage": {"a": 2}}]}], None),
        ([{"x_groq": {"usage": {"a": 1}}}], None),
    ],
)
def test_usage_is_the_last_one_at_the_top_or_else_in_the_first_choice(extra: list[Any], expected: Any) -> None:
    response = assemble(chunk({"content": "x"}), *extra, DONE).response
    assert response is not None
    assert expected == response.get("usage")


def test_logprobs_and_token_ids_are_joined_for_each_choice() -> None:
    choice = only_choice(
        chunk({"content": "a"}, logprobs={"content": [{"token": "\ud83d"}], "refusal": None}, token_ids=[1]),
        chunk({"content": "b"}, logprobs=None, token_ids=None, prompt_token_ids=[7, 8]),
        chunk({"content": "c"}, logprobs={"content": [{"token": "c"}]}, token_ids=[2, 3], prompt_token_ids=[9]),
        chunk({"content": "d", "token_ids": [4], "logprobs": {"content": [{"token": "d"}]}}),
        chunk({"content": "e"}, logprobs=5, token_ids={"x": 1}, prompt_token_ids="x"),
    )
    assert {
        "index": 0,
        "message": {"role": "assistant", "content": "abcde"},
        "finish_reason": None,
        "logprobs": {"content": [{"token": "\ufffd"}, {"token": "c"}, {"token": "d"}], "refusal": None},
        "token_ids": [1, 2, 3, 4],
        "prompt_token_ids": [7, 8],
    } == choice


def test_prompt_token_ids_at_the_top_stay_there_and_other_fields_go() -> None:
    first = chunk({"content": "x"}) | {"prompt_token_ids": [1, 2], "system_fingerprint": "fp"}
    response = assemble(first, chunk({}) | {"prompt_token_ids": [3]}, DONE).response
    assert response is not None
    assert ["object", "model", "choices", "id", "prompt_token_ids"] == list(response)
    assert [1, 2] == response["prompt_token_ids"]


def test_an_unreadable_data_line_costs_only_itself() -> None:
    assembly = assemble(": PROCESSING", "{broken", "1", "null", "[]", chunk({"content": "hi"}, "stop"), DONE)
    assert assembly == assemble(chunk({"content": "hi"}, "stop"), DONE)


def test_a_long_answer_in_many_deltas_is_whole() -> None:
    call = {"index": 0, "function": {"name": "ab", "arguments": "x"}}
    many = 50_000
    line = b"data: " + json.dumps(chunk({"content": "y" * 20, "tool_calls": [call]})).encode() + b"\n\n"
    response = Chat().assemble(events(line * many)).response
    assert response is not None
    answer = response["choices"][0]["message"]
    assert len(answer["content"]) == 20 * many
    assert answer["tool_calls"][0]["function"] == {"name": "ab", "arguments": "x" * many}


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [path, *(deeper for key, item in items for deeper in paths(item, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    if not path:
        return by
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], by)
    return copy


FULL = chunk(
    {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}, {"type": "text", "text": "u"}],
        "reasoning": "r",
        "reasoning_content": "r",
        "refusal": "n",
        "function_call": {"name": "f", "arguments": "{}"},
        "tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    "stop",
    logprobs={"content": [{"token": "t", "logprob": -0.5, "top_logprobs": []}], "refusal": None},
    token_ids=[1],
    prompt_token_ids=[2],
    usage={"prompt_tokens": 1},
) | {"usage": {"prompt_tokens": 1}, "prompt_token_ids": [1], "error": None, "object": "chat.completion.chunk"}


@given(st.lists(st.tuples(st.sampled_from(paths(FULL)), st.sampled_from(ODD)), max_size=6))
def test_any_odd_field_costs_only_itself_and_raises_nothing(oddities: list[tuple[tuple[Any, ...], Any]]) -> None:
    good = chunk({"content": "good "})
    bodies = [replaced(FULL, path, odd) for path, odd in oddities]
    assembly = assemble(good, *bodies, DONE)
    assert assembly.terminal is not None
    assert assembly.response is not None
    first = next(choice for choice in assembly.response["choices"] if choice["index"] == 0)
    assert first["message"]["content"].startswith("good ")
    if not any(10**30 in ([odd] if odd.__class__ is int else []) for _, odd in oddities):
        json_text.dumps(assembly.response)


@given(
    st.recursive(
        st.sampled_from(ODD),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "id",
                        "model",
                        "choices",
                        "index",
                        "delta",
                        "content",
                        "tool_calls",
                        "function",
                        "name",
                        "error",
                        "arguments",
                        "usage",
                        "logprobs",
                        "token_ids",
                        "type",
                        "text",
                        "finish_reason",
                    ]
                ),
                inner,
            )
        ),
    )
)
def test_no_json_makes_assembly_raise(value: Any) -> None:
    assemble(value, chunk({"content": "x"}), value)


@given(st.binary(max_size=300))
def test_no_bytes_make_assembly_raise(body: bytes) -> None:
    Chat().assemble(events(body))
