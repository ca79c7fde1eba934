"""A request of the Responses API, for a backend that speaks chat."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from otel_gym.errors import ConversionError
from otel_gym.staging.backend.parts import a_list, a_text, an_object, function_call, function_tool, joined, named_choice
from otel_gym.staging.compactions import REQUEST, is_compaction, left_by_compaction, summary_of, wants_compaction

_RENAMED = {"max_output_tokens": "max_completion_tokens"}
# What a stateless backend has no use for: it goes no further, and the client's answer repeats it.
_DROPPED = frozenset(
    {
        "background",
        "context_management",
        "include",
        "input",
        "instructions",
        "max_tool_calls",
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "store",
        "stream",
        "stream_options",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "truncation",
        "client_metadata",
    }
)
_KEPT_BY_THE_SERVER = ("previous_response_id", "conversation", "prompt")
_INPUT_SCHEMA = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def custom_tools(request: Mapping[str, Any]) -> frozenset[str]:
    """Names of the tools whose input is a text; for the backend they are functions with one argument, `input`."""
    tools = a_list("tools", request.get("tools"))
    return frozenset(tool["name"] for tool in tools if isinstance(tool, dict) and tool.get("type") == "custom")


def from_responses(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request as a chat request, with flat names of tools as they stand.

    Tools that the provider itself would run (`web_search`, …) are offers that a backend cannot make: they are left out.
    So is `context_management`: the context is compacted where the client says so, not unasked. Where it does, the model
    is asked for a summary, in any form and without a call.

    Args:
        request: is not changed.

    Raises:
        ConversionError: it leans on what another server keeps, or holds what chat cannot say.
    """
    compacts = wants_compaction(request)
    for key in _KEPT_BY_THE_SERVER:
        if request.get(key) is not None:
            raise ConversionError(f"{key} is kept by a server that this is not: send the whole input")
    chat = {
        _RENAMED.get(key, key): value for key, value in request.items() if key not in _DROPPED and value is not None
    }
    for key in _KEPT_BY_THE_SERVER:
        chat.pop(key, None)
    chat["messages"] = _messages(request)
    tools = [found for tool in a_list("tools", request.get("tools")) if (found := _tool(an_object("tool", tool)))]
    choice = request.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        names = {tool.get("name") for tool in a_list("allowed tools", choice.get("tools")) if isinstance(tool, dict)}
        tools = [tool for tool in tools if tool["function"]["name"] in names]
        choice = choice.get("mode", "auto")
    if tools:
        chat["tools"] = tools
        if compacts:  # they stay, so that the prompt begins as those before it
            chat["tool_choice"] = "none"
        elif choice is not None:
            chat["tool_choice"] = _choice(choice)
    elif isinstance(choice, dict):
        _choice(choice)
    effort = an_object("reasoning", request.get("reasoning") or {}).get("effort")
    if effort is not None:
        chat["reasoning_effort"] = effort
    text = an_object("text", request.get("text") or {})
    response_format = _format(an_object("text.format", text.get("format") or {}))
    if response_format is not None and not compacts:
        chat["response_format"] = response_format
    if text.get("verbosity") is not None:
        chat["verbosity"] = text["verbosity"]
    return chat


def _messages(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    history = _History()
    if request.get("instructions"):
        history.say("system", a_text("instructions", request["instructions"]))
    given = request.get("input")
    if isinstance(given, str):
        history.say("user", given)
    else:
        compacts = wants_compaction(request)
        items = left_by_compaction(a_list("input", given))
        for item in items[:-1] if compacts else items:
            history.add(an_object("item of the input", item))
        if compacts:
            history.say("user", REQUEST)
    return history.messages


class _History:
    """Chat messages from items: what one answer said in several items is one message again."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None

    def say(self, role: str, content: Any) -> None:
        self._open = None
        self.messages.append({"role": role, "content": content})

    def add(self, item: dict[str, Any]) -> None:
        kind = item.get("type", "message")
        if kind == "message":
            role = a_text("role", item.get("role"))
            if role == "assistant":
                self._assistant(item)
            else:
                self.say("system" if role == "developer" else role, _content(item.get("content")))
        elif kind == "reasoning":
            self._reasoning(item)
        elif kind == "function_call":
            arguments = a_text("arguments", item.get("arguments"))
            self._call(function_call(item.get("call_id"), item.get("name"), arguments))
        elif kind == "custom_tool_call":
            arguments = json.dumps({"input": a_text("input", item.get("input"))}, ensure_ascii=False)
            self._call(function_call(item.get("call_id"), item.get("name"), arguments))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self._open = None
            call_id = a_text("call_id", item.get("call_id"))
            self.messages.append({"role": "tool", "tool_call_id": call_id, "content": _content(item.get("output"))})
        elif is_compaction(item):
            self.say("assistant", summary_of(item))
        else:
            raise ConversionError(f"an item of type {kind!r:.80} cannot be said to a chat backend")

    def _message(self, *begun_by: str) -> dict[str, Any]:
        """The assistant's message that an item belongs to: a new one where the last has what would come later."""
        if self._open is None or any(self._open.get(key) for key in begun_by):
            self._open = {"role": "assistant", "content": None}
            self.messages.append(self._open)
        return self._open

    def _assistant(self, item: dict[str, Any]) -> None:
        message = self._message("content", "refusal", "tool_calls")
        content = item.get("content")
        if isinstance(content, str):
            message["content"] = content
            return
        parts = [an_object("part of a message", part) for part in a_list("content of a message", content)]
        refusals = [a_text("refusal", part.get("refusal")) for part in parts if part.get("type") == "refusal"]
        texts = [
            a_text("text", part.get("text"))
            for part in parts
            if part.get("type") in ("output_text", "input_text", "text")
        ]
        if len(refusals) + len(texts) != len(parts):
            raise ConversionError("an assistant's message has texts and refusals only")
        message["content"] = joined(texts)
        if refusals:
            message["refusal"] = joined(refusals)

    def _reasoning(self, item: dict[str, Any]) -> None:
        parts = a_list("content of reasoning", item.get("content")) or a_list("summary", item.get("summary"))
        thought = joined(
            [a_text("text of reasoning", an_object("part of reasoning", part).get("text")) for part in parts]
        )
        if thought is not None:  # encrypted thoughts say nothing to another server
            self._message("content", "refusal", "tool_calls", "reasoning_content")["reasoning_content"] = thought

    def _call(self, call: dict[str, Any]) -> None:
        self._message().setdefault("tool_calls", []).append(call)


def _content(content: Any) -> Any:
    if isinstance(content, str):
        return content
    parts = [_part(an_object("part of a message", part)) for part in a_list("content of a message", content)]
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts) if len(parts) < 2 else parts
    return parts


def _part(part: dict[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text"):
        return {"type": "text", "text": a_text("text", part.get("text"))}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        image = {"url": part["image_url"], **({"detail": part["detail"]} if part.get("detail") else {})}
        return {"type": "image_url", "image_url": image}
    if kind == "input_file":
        fields = {key: part[key] for key in ("file_data", "file_id", "filename") if part.get(key) is not None}
        return {"type": "file", "file": fields}
    raise ConversionError(f"a part of type {kind!r:.80} cannot be said to a chat backend")


def _tool(tool: dict[str, Any]) -> dict[str, Any] | None:
    if tool.get("type") == "function":
        return function_tool(tool, tool.get("parameters"))
    if tool.get("type") == "custom":
        return function_tool(tool, _INPUT_SCHEMA)
    return None


def _choice(choice: Any) -> Any:
    if isinstance(choice, str):
        return choice
    if an_object("tool_choice", choice).get("type") in ("function", "custom"):
        return named_choice(choice.get("name"))
    raise ConversionError(f"the backend has no tool {choice.get('type')!r:.80} that could be chosen")


def _format(given: dict[str, Any]) -> dict[str, Any] | None:
    kind = given.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_schema":
        return {"type": kind, "json_schema": {key: value for key, value in given.items() if key != "type"}}
    return given
