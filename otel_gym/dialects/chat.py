"""Chat Completions streams (`/v1/chat/completions`): their end, and the completion that their chunks amount to.

The rebuilt object has the keys of the reference in its order: object, model, choices, id, usage (`capture.md`,
"Streams"); where more is kept, a row of `divergences.md` says so. What is not of the type that it should be is passed
over, and costs only itself (row 9).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from otel_gym.dialects import chat_content, chat_facts
from otel_gym.dialects.base import Assembly, Terminal
from otel_gym.dialects.content import content_attributes
from otel_gym.dialects.mending import mended
from otel_gym.dialects.tool_calls import FunctionCall, ToolCalls, is_index
from otel_gym.semconv import AttributeValue
from otel_gym.sse import DONE, Event, EventStream


class Chat:
    """The chat dialect."""

    name = "chat"
    path = "/v1/chat/completions"
    needles: tuple[bytes, ...] = (DONE, b"error")
    provider = "openai"

    def terminal(self, event: Event) -> Terminal | None:
        """`[DONE]` completes; an event, a payload or a field that says error is one (rows 15, 29)."""
        if event.name == "error" or event.error is not None:
            return "error"
        data = event.data
        if b'"error"' in data:
            payload = event.payload
            if isinstance(payload, dict):
                error = payload.get("error")
                if isinstance(error, dict) or (isinstance(error, str) and error) or payload.get("type") == "error":
                    return "error"
        elif DONE in data and data.strip() == DONE:
            return "complete"
        return None

    def assemble(self, events: Iterable[Event]) -> Assembly:
        """Rebuild the completion up to the first terminal event, whose own content counts (row 11)."""
        completion = _Completion()
        for event in events:
            payload = event.payload
            if payload.__class__ is dict:
                if not event.name and event.error is None and (texts := completion.add_text(payload)) is not None:
                    if isinstance(events, EventStream):
                        texts += events.alike("content", texts[-1])
                    continue
                completion.add(payload)
                if not (event.name or "error" in payload or "type" in payload or event.error):
                    continue  # what `terminal` would say too, without a look at the bytes
            terminal = self.terminal(event)
            if terminal is not None:
                return Assembly(completion.build(), terminal)
        return Assembly(completion.build())

    def request_facts(self, request: Mapping[str, Any]) -> dict[str, AttributeValue]:
        """See `base.Dialect`."""
        return chat_facts.request_facts(request)

    def response_facts(self, response: Mapping[str, Any]) -> dict[str, AttributeValue]:
        """See `base.Dialect`."""
        return chat_facts.response_facts(response)

    def content(
        self, request: Mapping[str, Any] | None, response: Mapping[str, Any] | None
    ) -> dict[str, str | tuple[str, ...]]:
        """See `base.Dialect`."""
        return content_attributes(chat_content, request, response)


class _Completion:
    """What the chunks so far amount to."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.model: Any = None
        self.usage: dict[str, Any] | None = None
        self.choice_usage: dict[str, Any] | None = None
        self.prompt_token_ids: list[Any] | None = None
        self.choices: dict[int, _Choice] = {}

    def add_text(self, chunk: dict[str, Any]) -> list[str] | None:
        """Take a chunk that brings a piece of a known choice's content and nothing else.

        Returns that choice's content so far; None, and nothing taken, for any other chunk.
        """
        if not _TEXT_CHUNK_KEYS.issuperset(chunk) or chunk.get("usage") or chunk.get("id") != self.id:
            return None
        choices = chunk.get("choices")
        if choices.__class__ is not list or len(choices) != 1 or chunk.get("model") != self.model:
            return None
        choice = choices[0]
        if choice.__class__ is not dict or not _TEXT_CHOICE_KEYS.issuperset(choice):
            return None
        delta = choice.get("delta")
        index = choice.get("index")
        if delta.__class__ is not dict or len(delta) != 1 or index.__class__ is not int:
            return None
        content = delta.get("content")
        state = self.choices.get(index)
        if content.__class__ is not str or state is None or choice.get("finish_reason") or choice.get("logprobs"):
            return None
        state.content.append(content)
        return state.content

    def add(self, chunk: dict[str, Any]) -> None:
        own_id = chunk.get("id")
        # Chunks of metadata come with an empty id or model, and rename nothing.
        if own_id != self.id and isinstance(own_id, str) and (own_id or self.id is None):
            self.id = own_id
        model = chunk.get("model")
        if model:
            self.model = model
        if "usage" in chunk:
            self.usage = _filled(chunk["usage"], dict) or self.usage
        if "prompt_token_ids" in chunk:
            self.prompt_token_ids = self.prompt_token_ids or _filled(chunk["prompt_token_ids"], list)
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            return
        for position, choice in enumerate(choices):
            if isinstance(choice, dict):
                index = choice.get("index")
                state = self.choices.get(index) if index.__class__ is int else None
                (state or self._choice_at(index if is_index(index) else position)).add(choice)
                if position == 0 and "usage" in choice:
                    self.choice_usage = _filled(choice["usage"], dict) or self.choice_usage  # row 27

    def build(self) -> dict[str, Any] | None:
        """The completion; None when no chunk had a choice."""
        if not self.choices:
            return None
        response: dict[str, Any] = {
            "object": "chat.completion",
            "model": mended(self.model),
            "choices": [self.choices[index].build() for index in sorted(self.choices)],
        }
        if self.id is not None:
            response["id"] = mended(self.id)
        usage = self.usage or self.choice_usage
        if usage is not None:
            response["usage"] = mended(usage)
        if self.prompt_token_ids is not None:
            response["prompt_token_ids"] = mended(self.prompt_token_ids)
        return response

    def _choice_at(self, index: int) -> _Choice:
        return self.choices.setdefault(index, _Choice(index))


class _Choice:
    """One choice: its message so far, and what stands beside it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.role = "assistant"
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.refusal: list[str] = []
        self.tool_calls: ToolCalls | None = None
        self.function_call: FunctionCall | None = None
        self.finish_reason: str | None = None
        self.logprobs: dict[str, Any] | None = None
        self.token_ids: list[Any] | None = None
        self.prompt_token_ids: list[Any] | None = None

    def add(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta")
        if isinstance(delta, dict):
            for key, value in delta.items():
                if key == "content" and value.__class__ is str:
                    self.content.append(value)
                elif value:
                    self._add_field(key, value, delta)
                    if key in _BESIDE_THE_MESSAGE and not choice.get(key):
                        self._add_beside(key, value)
        finish_reason = choice.get("finish_reason")
        if finish_reason and isinstance(finish_reason, str):
            self.finish_reason = finish_reason
        if choice.get("logprobs") or choice.get("token_ids") or choice.get("prompt_token_ids"):
            for key in _BESIDE_THE_MESSAGE:
                self._add_beside(key, choice.get(key))

    def build(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": mended(self.role), "content": mended("".join(self.content)) or None}
        for key, pieces in (("reasoning_content", self.reasoning), ("refusal", self.refusal)):
            if text := "".join(pieces):
                message[key] = mended(text)
        if self.tool_calls is not None:
            message["tool_calls"] = self.tool_calls.build()
        if self.function_call is not None:
            message["function_call"] = self.function_call.build()
        choice = {"index": self.index, "message": message, "finish_reason": mended(self.finish_reason)}
        for key in _BESIDE_THE_MESSAGE:
            value = getattr(self, key)
            if value is not None:
                choice[key] = mended(value)
        return choice

    def _add_field(self, key: str, value: Any, delta: dict[str, Any]) -> None:
        """Take one field of a delta, with a value that says something."""
        if isinstance(value, str):
            if key == "reasoning_content":
                self.reasoning.append(value)
            elif key == "reasoning":  # the same under its other name: some servers send both
                other = delta.get("reasoning_content")
                if not (other and isinstance(other, str)):
                    self.reasoning.append(value)
            elif key == "refusal":
                self.refusal.append(value)
            elif key == "role":
                self.role = value
        elif isinstance(value, list):
            if key == "tool_calls":
                for piece in value:
                    if isinstance(piece, dict):
                        self.tool_calls = self.tool_calls or ToolCalls()
                        self.tool_calls.add(piece)
            elif key == "content":
                self._add_parts(value)
        elif key == "function_call" and isinstance(value, dict):
            self.function_call = self.function_call or FunctionCall()
            self.function_call.add(value)

    def _add_parts(self, parts: list[Any]) -> None:
        """Take content that comes as a list of parts (row 9)."""
        for part in parts:
            if isinstance(part, str):
                self.content.append(part)
            elif isinstance(part, dict):
                kind = part.get("type", "text")
                if not isinstance(kind, str):
                    continue
                if kind.startswith(("thinking", "reasoning")):
                    self.reasoning.extend(_texts(part, _THOUGHT_KEYS))
                elif kind == "refusal":
                    self.refusal.extend(_texts(part, ("refusal",)))
                elif kind.endswith("text"):
                    self.content.extend(_texts(part, ("text",)))

    def _add_beside(self, key: str, value: Any) -> None:
        """Take a piece of what engines give beside the message (row 7)."""
        if key == "logprobs":
            if isinstance(value, dict):
                self.logprobs = self.logprobs or {}
                for name, tokens in value.items():
                    known = self.logprobs.setdefault(name, None)
                    if isinstance(tokens, list):
                        self.logprobs[name] = [*tokens] if known is None else known
                        if known is not None:
                            known.extend(tokens)
        elif key == "prompt_token_ids":
            self.prompt_token_ids = self.prompt_token_ids or _filled(value, list)
        elif isinstance(value, list):
            self.token_ids = self.token_ids or []
            self.token_ids.extend(value)


_TEXT_CHUNK_KEYS = frozenset(
    ("id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier")
)
_TEXT_CHOICE_KEYS = frozenset(("index", "delta", "finish_reason", "logprobs"))
_THOUGHT_KEYS = ("thinking", "reasoning", "reasoning_content", "text", "summary")
_BESIDE_THE_MESSAGE = ("logprobs", "token_ids", "prompt_token_ids")


def _filled(value: Any, kind: type) -> Any:
    """The value where it is a list (an object) with something in it, else None."""
    return value if value and isinstance(value, kind) else None


def _texts(part: dict[str, Any], keys: tuple[str, ...]) -> list[str]:
    """The text of a part under the first of the keys that has one; parts may have parts."""
    for key in keys:
        value = part.get(key)
        if isinstance(value, str):
            return [value]
        if isinstance(value, list):
            texts = [item.get("text") if isinstance(item, dict) else item for item in value]
            return [text for text in texts if isinstance(text, str)]
    return []
