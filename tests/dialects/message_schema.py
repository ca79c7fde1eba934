"""The GenAI message schema (semantic-conventions-genai v0.1.0) as far as it says what must be there."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class Text(Loose):
    type: Literal["text", "reasoning"]
    content: str


class ToolCall(Loose):
    type: Literal["tool_call"]
    id: str | None = None
    name: str
    arguments: Any


class ToolCallResponse(Loose):
    type: Literal["tool_call_response"]
    id: str | None = None
    response: Any


class Typed(Loose):
    type: str


class ServerToolCall(Loose):
    type: Literal["server_tool_call"]
    id: str | None = None
    name: str
    server_tool_call: Typed


class ServerToolCallResponse(Loose):
    type: Literal["server_tool_call_response"]
    id: str | None = None
    server_tool_call_response: Typed


class Media(Loose):
    modality: str
    mime_type: str | None = None


class Blob(Media):
    type: Literal["blob"]
    content: str


class Uri(Media):
    type: Literal["uri"]
    uri: str


class File(Media):
    type: Literal["file"]
    file_id: str


class Compaction(Loose):
    type: Literal["compaction"]
    id: str | None = None
    content: str | None = None


class Generic(Loose):
    type: Literal["generic"]
    generic_type: str


Part = Annotated[
    Text
    | ToolCall
    | ToolCallResponse
    | ServerToolCall
    | ServerToolCallResponse
    | Blob
    | Uri
    | File
    | Compaction
    | Generic,
    Field(discriminator="type"),
]


class Message(Loose):
    role: str
    parts: list[Part]
    name: str | None = None


class OutputMessage(Message):
    finish_reason: str


class Instruction(Loose):
    type: Literal["text", "generic"]


class Tool(Loose):
    type: str
    name: str


SCHEMAS: dict[str, TypeAdapter[Any]] = {
    "gen_ai.input.messages": TypeAdapter(list[Message]),
    "gen_ai.output.messages": TypeAdapter(list[OutputMessage]),
    "gen_ai.system_instructions": TypeAdapter(list[Instruction]),
    "gen_ai.tool.definitions": TypeAdapter(list[Tool]),
}
"""Attribute → what its JSON must be."""
