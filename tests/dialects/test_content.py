"""What was said, in the GenAI message schema: golden examples of each dialect."""

from __future__ import annotations

import base64

from otel_gym import semconv
from tests.dialects.telling import (
    CHAT,
    LARGE,
    LARGE_URI,
    MESSAGES,
    PNG,
    RESPONSES,
    answered,
    asked,
    reasoning,
    text,
    told,
)

# ---------------------------------------------------------------------- chat


def test_a_chat_with_a_tool() -> None:
    request = {
        "model": "m",
        "stop": "END",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "name": "ann", "content": [{"type": "text", "text": "Weather in Paris?"}]},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "I need the tool.",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": '{"location": "Paris"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "rainy, 57°F"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "get_weather", "description": "Weather.", "parameters": {"type": "object"}},
            }
        ],
    }
    assert told(CHAT, request) == {
        "gen_ai.request.stop_sequences": ("END",),
        "gen_ai.tool.definitions": [
            {
                "type": "function",
                "name": "get_weather",
                "description": "Weather.",
                "parameters": {"type": "object"},
            }
        ],
        "gen_ai.input.messages": [
            {"role": "system", "parts": [text("Be brief.")]},
            {"role": "user", "parts": [text("Weather in Paris?")], "name": "ann"},
            {
                "role": "assistant",
                "parts": [
                    reasoning("I need the tool."),
                    {
                        "type": "tool_call",
                        "id": "call_1",
                        "name": "get_weather",
                        "arguments": {"location": "Paris"},
                    },
                ],
            },
            {
                "role": "tool",
                "parts": [{"type": "tool_call_response", "id": "call_1", "response": "rainy, 57°F"}],
            },
        ],
    }


def test_each_choice_of_a_completion_is_a_message_with_its_finish_reason() -> None:
    response = {
        "choices": [
            {"message": {"role": "assistant", "content": "Rain.", "reasoning": "Wet."}, "finish_reason": "stop"},
            {
                "message": {
                    "role": "assistant",
                    "content": None,
                    "refusal": "No.",
                    "tool_calls": [
                        {"id": "", "type": "function", "function": {"name": "f", "arguments": "{"}},
                        {"id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls"}},
                    ],
                    "function_call": {"name": "old", "arguments": "{}"},
                },
                "finish_reason": None,
            },
        ]
    }
    assert answered(CHAT, response) == [
        {"role": "assistant", "parts": [reasoning("Wet."), text("Rain.")], "finish_reason": "stop"},
        {
            "role": "assistant",
            "parts": [
                {"type": "generic", "generic_type": "refusal", "refusal": "No."},
                {"type": "tool_call", "id": "", "name": "f", "arguments": "{"},
                {"type": "tool_call", "id": "c", "name": "shell", "arguments": "ls"},
                {"type": "tool_call", "name": "old", "arguments": {}},
            ],
            "finish_reason": "unknown",
        },
    ]


def test_sound_that_a_completion_speaks_comes_with_its_transcript() -> None:
    message = {"role": "assistant", "content": None, "audio": {"id": "a", "data": PNG, "transcript": "Hello."}}
    (answer,) = answered(CHAT, {"choices": [{"message": message, "finish_reason": "stop"}]})
    assert [{"type": "blob", "modality": "audio", "content": PNG, "transcript": "Hello."}] == answer["parts"]


# ---------------------------------------------------------------------- messages


def test_a_conversation_of_messages_with_thinking_and_tools() -> None:
    request = {
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "stop_sequences": ["A", "B"],
        "tools": [
            {"name": "run", "description": "Runs.", "input_schema": {"type": "object"}},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
        ],
        "messages": [
            {"role": "user", "content": "Go"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                    {"type": "redacted_thinking", "data": "ZW5j"},
                    {"type": "tool_use", "id": "toolu_1", "name": "run", "input": {"cmd": "ls"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "is_error": True,
                        "content": [
                            {"type": "text", "text": "no such file"},
                            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                        ],
                    },
                    {"type": "text", "text": "again"},
                ],
            },
        ],
    }
    assert told(MESSAGES, request) == {
        "gen_ai.request.stop_sequences": ("A", "B"),
        "gen_ai.system_instructions": [text("Be brief.")],
        "gen_ai.tool.definitions": [
            {"type": "function", "name": "run", "description": "Runs.", "parameters": {"type": "object"}},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
        ],
        "gen_ai.input.messages": [
            {"role": "user", "parts": [text("Go")]},
            {
                "role": "assistant",
                "parts": [
                    reasoning("Hm."),
                    {"type": "generic", "generic_type": "redacted_thinking", "data": "ZW5j"},
                    {"type": "tool_call", "id": "toolu_1", "name": "run", "arguments": {"cmd": "ls"}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {
                        "type": "tool_call_response",
                        "id": "toolu_1",
                        "response": [
                            text("no such file"),
                            {"type": "blob", "modality": "image", "mime_type": "image/png", "content": PNG},
                        ],
                        "is_error": True,
                    },
                    text("again"),
                ],
            },
        ],
    }


def test_a_message_with_a_search_of_the_provider() -> None:
    response = {
        "role": "assistant",
        "stop_reason": "end_turn",
        "content": [
            {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "otel"}},
            {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"title": "t"}]},
            {"type": "compaction", "content": "so far", "encrypted_content": "x"},
            {"type": "text", "text": "Found.", "citations": []},
        ],
    }
    assert answered(MESSAGES, response) == [
        {
            "role": "assistant",
            "parts": [
                {
                    "type": "server_tool_call",
                    "id": "srv_1",
                    "name": "web_search",
                    "server_tool_call": {
                        "type": "server_tool_use",
                        "name": "web_search",
                        "input": {"query": "otel"},
                    },
                },
                {
                    "type": "server_tool_call_response",
                    "id": "srv_1",
                    "server_tool_call_response": {"type": "web_search_tool_result", "content": [{"title": "t"}]},
                },
                {"type": "compaction", "content": "so far"},
                text("Found."),
            ],
            "finish_reason": "end_turn",
        }
    ]


# ---------------------------------------------------------------------- responses


def test_the_items_of_one_answer_are_one_message_in_the_next_request() -> None:
    request = {
        "instructions": "Be brief.",
        "tools": [
            {"type": "function", "name": "run", "parameters": {"type": "object"}, "strict": True},
            {"type": "web_search"},
            {
                "type": "mcp",
                "server_label": "docs",
                "server_url": "https://x",
                "headers": {"a": "k"},
                "authorization": "k",
            },
        ],
        "input": [
            {"role": "user", "content": "Go"},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}, {"text": "So."}]},
            {"type": "function_call", "call_id": "call_1", "name": "run", "arguments": '{"cmd": "ls"}'},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Running."}]},
            {"type": "function_call_output", "call_id": "call_1", "output": "a.py"},
            {"type": "custom_tool_call", "call_id": "call_2", "name": "patch", "input": "*** Begin"},
            {
                "type": "custom_tool_call_output",
                "call_id": "call_2",
                "output": [{"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}],
            },
            {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "ZW5j"},
            {"type": "item_reference", "id": "msg_1"},
        ],
    }
    assert told(RESPONSES, request) == {
        "gen_ai.system_instructions": [text("Be brief.")],
        "gen_ai.tool.definitions": [
            {"type": "function", "name": "run", "parameters": {"type": "object"}, "strict": True},
            {"type": "web_search", "name": "web_search"},
            {"type": "mcp", "name": "mcp", "server_label": "docs", "server_url": "https://x"},
        ],
        "gen_ai.input.messages": [
            {"role": "user", "parts": [text("Go")]},
            {
                "role": "assistant",
                "parts": [
                    reasoning("Hm.\nSo."),
                    {"type": "tool_call", "id": "call_1", "name": "run", "arguments": {"cmd": "ls"}},
                    text("Running."),
                ],
            },
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": "a.py"}]},
            {
                "role": "assistant",
                "parts": [{"type": "tool_call", "id": "call_2", "name": "patch", "arguments": "*** Begin"}],
            },
            {
                "role": "tool",
                "parts": [
                    {
                        "type": "tool_call_response",
                        "id": "call_2",
                        "response": [{"type": "blob", "modality": "image", "mime_type": "image/png", "content": PNG}],
                    }
                ],
            },
            {
                "role": "assistant",
                "parts": [
                    {"type": "generic", "generic_type": "reasoning", "id": "rs_2", "summary": [], "encrypted": True}
                ],
            },
            {"role": "user", "parts": [{"type": "generic", "generic_type": "item_reference", "id": "msg_1"}]},
        ],
    }


def test_a_response_is_one_message_with_a_part_for_each_item() -> None:
    response = {
        "status": "completed",
        "output": [
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "otel"}},
            {"type": "image_generation_call", "id": "ig_1", "result": base64.b64encode(LARGE).decode()},
            {"type": "mcp_call", "id": "mcp_1", "name": "read", "arguments": "{}", "output": "x"},
            {"type": "local_shell_call", "call_id": "call_1", "action": {"command": ["ls"]}},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Done."}, {"type": "refusal", "refusal": "No."}],
            },
        ],
    }
    assert answered(RESPONSES, response) == [
        {
            "role": "assistant",
            "parts": [
                reasoning("Hm."),
                {
                    "type": "server_tool_call",
                    "id": "ws_1",
                    "name": "web_search",
                    "server_tool_call": {
                        "type": "web_search_call",
                        "status": "completed",
                        "action": {"query": "otel"},
                    },
                },
                {
                    "type": "server_tool_call",
                    "id": "ig_1",
                    "name": "image_generation",
                    "server_tool_call": {"type": "image_generation_call"},
                },
                {"type": "uri", "modality": "image", "mime_type": "image/png", "uri": LARGE_URI, "size": len(LARGE)},
                {
                    "type": "server_tool_call",
                    "id": "mcp_1",
                    "name": "read",
                    "server_tool_call": {"type": "mcp_call", "name": "read", "arguments": "{}", "output": "x"},
                },
                {"type": "tool_call", "id": "call_1", "name": "local_shell", "arguments": {"command": ["ls"]}},
                text("Done."),
                {"type": "generic", "generic_type": "refusal", "refusal": "No."},
            ],
            "finish_reason": "tool_call",
        }
    ]


def test_the_input_of_a_response_may_be_a_text() -> None:
    assert [{"role": "user", "parts": [text("hi")]}] == asked(RESPONSES, {"input": "hi"})


def test_instructions_may_be_items() -> None:
    items = [{"role": "developer", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image"}]}, "b"]
    assert told(RESPONSES, {"instructions": items})[semconv.SYSTEM_INSTRUCTIONS] == [
        text("a"),
        {"type": "generic", "generic_type": "input_image"},
        text("b"),
    ]
