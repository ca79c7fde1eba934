"""Chat answers of a worker: one with everything, and a strategy for all valid ones."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

TOKENS: dict[str, Any] = {
    "prompt_token_ids": [11, 12],
    "generation_token_ids": [13],
    "generation_log_probs": [-0.5],
    "routed_experts": "nrlre1:int8:1x1x1:AQ==",
    "token_ids": [13],
    "compact_prompt_token_ids": [11],
}

FULL: dict[str, Any] = {
    "id": "chatcmpl-7f3a",
    "object": "chat.completion",
    "created": 1764000001,
    "model": "policy",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Let me look. " * 700,
                "reasoning_content": "The user wants é and 🎉.",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": '{"q": "x"}'}},
                    {"id": "call_2", "type": "function", "function": {"name": "stop", "arguments": ""}},
                ],
                **TOKENS,
            },
            "logprobs": {"content": [{"token": "token_id:13", "logprob": -0.5}]},
            "finish_reason": "tool_calls",
            "token_ids": [13],
        }
    ],
    "usage": {
        "prompt_tokens": 20,
        "completion_tokens": 9,
        "total_tokens": 29,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    },
    "prompt_token_ids": [11, 12],
    "ng_commit_coords": {"rollout_id": "r"},
}

TEXT = st.text(st.characters(codec="utf-8"), max_size=60)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.one_of(
    st.dictionaries(TEXT, JSON, max_size=3).map(json.dumps),
    st.dictionaries(TEXT, JSON, max_size=3).map(lambda value: json.dumps(value, ensure_ascii=False, indent=1)),
    JSON.map(json.dumps),
    TEXT,
    st.sampled_from(["", "{", '{"a": NaN}', '{"a": 1e999}', "[]", '{"a": "\\ud800"}', '{"a": 1, "a": 2}']),
)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,20}", fullmatch=True)
COUNT = st.integers(0, 10**6)


@st.composite
def usages(draw: st.DrawFn) -> dict[str, Any] | None:
    if draw(st.integers(0, 9)) == 0:
        return None
    tokens_in, tokens_out = draw(COUNT), draw(COUNT)
    usage: dict[str, Any] = {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
    }
    if draw(st.booleans()):
        cached = draw(st.integers(0, tokens_in) | st.none())
        usage["prompt_tokens_details"] = draw(st.sampled_from([{"cached_tokens": cached}, None]))
    if draw(st.booleans()):
        usage["completion_tokens_details"] = {"reasoning_tokens": draw(st.integers(0, tokens_out))}
    return usage


@st.composite
def chat_answers(draw: st.DrawFn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": draw(TEXT | st.none())}
    if draw(st.booleans()):
        message["reasoning_content"] = draw(TEXT | st.none())
    if draw(st.integers(0, 5)) == 0:
        message["refusal"] = draw(TEXT | st.none())
    names = draw(st.lists(NAMES, max_size=4))
    empty_list = draw(st.booleans())
    if names or empty_list:
        message["tool_calls"] = [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": name, "arguments": draw(ARGUMENTS)},
            }
            for number, name in enumerate(names)
        ]
    finish = draw(st.sampled_from(["stop", "tool_calls", "length", "content_filter"]))
    choice = {"index": 0, "message": {**message, **TOKENS}, "finish_reason": finish, "logprobs": {"content": []}}
    return {**FULL, "choices": [choice], "usage": draw(usages())}
