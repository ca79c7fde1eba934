"""A client's conversation with a model server, by the SDK of each dialect, streamed or not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
CALL = "call the tool"
"""A text that makes the example worker call its first tool."""

_OF_A_CALL = ("name", "arguments")


class Conversation(ABC):
    """One conversation; what was said so far goes along with each call.

    Args:
        client: of the SDK, its base URL that of the rollout.

    Attributes:
        history: as the client's API has it.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.history: list[Any] = []

    async def say(self, text: str, stream: bool) -> Any:
        """Say it, as the result of the last answer's tool call where it has one; the SDK's answer."""
        self.history += self.said(text, self.history)
        answer = await (self.streamed() if stream else self.whole())
        self.history += self.heard(answer.to_dict(mode="json"))
        return answer

    @abstractmethod
    async def whole(self) -> Any:
        """An answer without streaming."""

    @abstractmethod
    async def streamed(self) -> Any:
        """An answer that the SDK has put together."""

    @abstractmethod
    def said(self, text: str, history: list[Any]) -> list[Any]:
        """What the history gets of the client's."""

    @abstractmethod
    def heard(self, answer: dict[str, Any]) -> list[Any]:
        """What it gets of an answer."""

    @abstractmethod
    def text(self, answer: Any) -> str:
        """All that an answer says."""


class Chat(Conversation):
    TOOLS: ClassVar[list[Any]] = [{"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}]

    async def whole(self) -> Any:
        return await self.client.chat.completions.create(model="m", messages=self.history, tools=self.TOOLS)

    async def streamed(self) -> Any:
        options: Any = {"include_usage": True}
        stream = self.client.chat.completions.stream(
            model="m", messages=self.history, tools=self.TOOLS, stream_options=options
        )
        async with stream as events:
            return await events.get_final_completion()

    def said(self, text: str, history: list[Any]) -> list[Any]:
        calls = history[-1].get("tool_calls") if history else None
        if calls:
            return [{"role": "tool", "tool_call_id": calls[0]["id"], "content": text}]
        return [{"role": "user", "content": text}]

    def heard(self, answer: dict[str, Any]) -> list[Any]:
        message = answer["choices"][0]["message"]
        calls = [
            {"id": call["id"], "type": "function", "function": {key: call["function"][key] for key in _OF_A_CALL}}
            for call in message.get("tool_calls") or ()
        ]
        spoken = {"role": "assistant", "content": message["content"]}
        return [{**spoken, "tool_calls": calls} if calls else spoken]

    def text(self, answer: Any) -> str:
        return str(answer.choices[0].message.content)


class Responses(Conversation):
    TOOLS: ClassVar[list[Any]] = [{"type": "namespace", "name": "geo", "description": "d", "tools": [
        {"type": "function", "name": "look", "parameters": PARAMETERS, "strict": False}
    ]}]  # fmt: skip

    async def whole(self) -> Any:
        return await self.client.responses.create(model="m", input=self.history, tools=self.TOOLS)

    async def streamed(self) -> Any:
        last = None
        async for event in await self.client.responses.create(
            model="m", input=self.history, tools=self.TOOLS, stream=True
        ):
            last = event
        assert last is not None
        assert "response.completed" == last.type
        return last.response

    def said(self, text: str, history: list[Any]) -> list[Any]:
        if history and history[-1].get("type") == "function_call":
            return [{"type": "function_call_output", "call_id": history[-1]["call_id"], "output": text}]
        return [{"role": "user", "content": text}]

    def heard(self, answer: dict[str, Any]) -> list[Any]:
        return list(answer["output"])

    def text(self, answer: Any) -> str:
        return str(answer.output_text)


class Messages(Conversation):
    TOOLS: ClassVar[list[Any]] = [{"name": "look", "input_schema": PARAMETERS}]

    async def whole(self) -> Any:
        return await self.client.messages.create(model="m", max_tokens=99, messages=self.history, tools=self.TOOLS)

    async def streamed(self) -> Any:
        stream = self.client.messages.stream(model="m", max_tokens=99, messages=self.history, tools=self.TOOLS)
        async with stream as events:
            return await events.get_final_message()

    def said(self, text: str, history: list[Any]) -> list[Any]:
        last = history[-1]["content"][-1] if history else {}
        if last.get("type") == "tool_use":
            return [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": last["id"], "content": text}]}]
        return [{"role": "user", "content": text}]

    def heard(self, answer: dict[str, Any]) -> list[Any]:
        return [{"role": "assistant", "content": answer["content"]}]

    def text(self, answer: Any) -> str:
        return "".join(block.text for block in answer.content if block.type == "text")


class Clients:
    """An SDK client of each kind, whose connections all conversations share."""

    def __init__(self) -> None:
        self._openai = AsyncOpenAI(api_key="none", base_url="http://none", max_retries=0)
        self._anthropic = AsyncAnthropic(api_key="none", base_url="http://none", max_retries=0)

    def conversation(self, dialect: str, url: str) -> Conversation:
        """A conversation with what is below a base URL without its `/v1`."""
        if dialect == "messages":
            return Messages(self._anthropic.with_options(base_url=url))
        kind = Chat if dialect == "chat" else Responses
        return kind(self._openai.with_options(base_url=f"{url}/v1"))

    async def __aenter__(self) -> Clients:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._openai.close()
        await self._anthropic.close()
