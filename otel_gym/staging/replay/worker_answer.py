"""A worker's whole chat answer, read once, for answers in any dialect.

What cannot be said in another dialect raises: an answer is converted without loss, or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from otel_gym.errors import ConversionError

Finish = Literal["stop", "tool_calls", "length", "content_filter"]

_FINISHES: dict[str, Finish] = {
    "function_call": "tool_calls",
    "tool_calls": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}
_TEXTS = {"text", "output_text"}
_THOUGHTS = {"thinking": "thinking", "reasoning": "text", "reasoning_text": "text"}


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool.

    Attributes:
        call_id: as the worker gave it, or made from the answer's id.
        custom: a tool whose input is a text, not JSON.
        arguments: as the model wrote them.
    """

    call_id: str
    name: str
    arguments: str
    namespace: str | None = None
    custom: bool = False


@dataclass(frozen=True)
class WorkerAnswer:
    """What a chat answer with one choice says.

    Attributes:
        id: the answer's; `suffix` is the same without `chatcmpl-`.
        created: Unix seconds, 0 when unknown.
        text, refusal, reasoning: None when the answer has none, which is not the same as an empty one.
        annotations: of the text, as chat has them.
        stop_sequence: the text that ended the answer, where the engine says so.
        usage: as chat has it, None when unknown.
    """

    id: str
    created: int
    model: str
    text: str | None
    refusal: str | None
    reasoning: str | None
    annotations: list[dict[str, Any]]
    tool_calls: list[ToolCall]
    finish: Finish
    stop_sequence: str | None
    usage: Mapping[str, Any] | None

    @property
    def suffix(self) -> str:
        """What ids of the answer in other dialects end with."""
        return self.id.removeprefix("chatcmpl-") or "0"


def read_answer(answer: Mapping[str, Any]) -> WorkerAnswer:
    """Read a chat answer; names of tools are taken as they stand, with the `namespace` beside them if there is one.

    Raises:
        ConversionError: not one choice, or something that no other dialect can say.
    """
    choices = answer.get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        raise ConversionError("an answer that is converted has one choice")
    choice = _object("choice", choices[0])
    message = _object("message", choice.get("message"))
    if message.get("audio"):
        raise ConversionError("audio cannot be converted")
    text, thoughts = _content(message.get("content"))
    reasoning = _text("reasoning_content", message.get("reasoning_content"))
    if reasoning is None:
        reasoning = _text("reasoning", message.get("reasoning"))
    answer_id = str(answer.get("id") or "")
    stop = choice.get("stop_reason")
    usage = answer.get("usage")
    created = answer.get("created")
    return WorkerAnswer(
        id=answer_id,
        created=int(created) if isinstance(created, (int, float)) else 0,
        model=str(answer.get("model") or ""),
        text=text,
        refusal=_text("refusal", message.get("refusal")),
        reasoning=thoughts if reasoning is None else reasoning,
        annotations=[_object("annotation", note) for note in message.get("annotations") or ()],
        tool_calls=_tool_calls(message, answer_id.removeprefix("chatcmpl-") or "0"),
        finish=_FINISHES.get(str(choice.get("finish_reason")), "stop"),
        stop_sequence=stop if isinstance(stop, str) else None,
        usage=None if usage is None else _object("usage", usage),
    )


def _content(content: Any) -> tuple[str | None, str | None]:
    """Text, and thoughts of a content that is a list of parts."""
    if content is None or isinstance(content, str):
        return content, None
    if not isinstance(content, list):
        raise ConversionError(f"content is a text or a list of parts, got {type(content).__name__}")
    texts, thoughts = [], []
    for part in content:
        kind = _object("part of the content", part).get("type")
        if kind in _TEXTS:
            texts.append(_text("text", part.get("text")) or "")
        elif kind in _THOUGHTS:
            thoughts.append(_text(str(kind), part.get(_THOUGHTS[kind])) or "")
        else:
            raise ConversionError(f"a part of type {kind!r} cannot be converted")
    return "".join(texts) if texts or not thoughts else None, "".join(thoughts) if thoughts else None


def _tool_calls(message: Mapping[str, Any], suffix: str) -> list[ToolCall]:
    calls = [_object("tool call", call) for call in message.get("tool_calls") or ()]
    legacy = message.get("function_call")
    if legacy is not None and not calls:
        calls = [{"function": legacy}]
    return [_tool_call(call, f"call_{suffix}_{number}") for number, call in enumerate(calls)]


def _tool_call(call: Mapping[str, Any], made_id: str) -> ToolCall:
    custom = call.get("custom") is not None
    called = _object("function of a tool call", call.get("custom" if custom else "function"))
    name = called.get("name")
    if not isinstance(name, str) or not name:
        raise ConversionError(f"a tool call has a name, got {name!r:.80}")
    return ToolCall(
        call_id=_text("id of a tool call", call.get("id")) or made_id,
        name=name,
        arguments=_text("arguments", called.get("input" if custom else "arguments")) or "",
        namespace=_text("namespace", called.get("namespace")),
        custom=custom,
    )


def _object(what: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConversionError(f"the {what} is an object, got {type(value).__name__}")
    return value


def _text(what: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ConversionError(f"{what} is a text, got {type(value).__name__}")
    return value
