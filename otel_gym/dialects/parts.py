"""Parts of a message in the GenAI message schema (semantic-conventions-genai v0.1.0), of content in any of the APIs.

The content types of the three APIs have different names, so one table reads them all, in requests and in answers, at
the top of a message and within a tool's result. A part that the schema has no type for, or that is not as its API says,
is kept as a `generic` one. Nothing here raises for what JSON may hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from otel_gym.dialects.media import inline, linked, uploaded
from otel_gym_jsonl import json_text

Part: TypeAlias = "dict[str, Any]"


def text(content: str) -> Part:
    """Text that the model was given or gave."""
    return {"type": "text", "content": content}


def reasoning(content: str) -> Part:
    """What the model thought."""
    return {"type": "reasoning", "content": content}


def refusal(content: str) -> Part:
    """What the model would not do; the schema has no type for it."""
    return generic("refusal", {"refusal": content})


def generic(kind: Any, fields: Mapping[str, Any]) -> Part:
    """What no type of the schema fits: the API's own type, and its fields as they are."""
    kept = {key: value for key, value in fields.items() if key not in ("type", "generic_type")}
    return {"type": "generic", "generic_type": kind if isinstance(kind, str) and kind else "unknown", **kept}


def tool_call(call_id: Any, name: Any, arguments: Any) -> Part:
    """A call that the model asks the client to make."""
    return _identified("tool_call", call_id, name=_name(name), arguments=arguments)


def tool_call_response(call_id: Any, response: Any) -> Part:
    """What a call gave; content parts within it are made parts of the schema too."""
    return _identified("tool_call_response", call_id, response=_result(response))


def server_tool_call(call_id: Any, name: Any, fields: Mapping[str, Any]) -> Part:
    """A call that the provider makes itself."""
    kind = _name(fields.get("type"))
    return _identified("server_tool_call", call_id, name=_name(name), server_tool_call={**fields, "type": kind})


def server_tool_call_response(call_id: Any, fields: Mapping[str, Any]) -> Part:
    """What a call of the provider's own gave."""
    kind = _name(fields.get("type"))
    return _identified("server_tool_call_response", call_id, server_tool_call_response={**fields, "type": kind})


def content_parts(content: Any) -> list[Part]:
    """The parts of a message's content: a text, a list of parts, or nothing."""
    if isinstance(content, list):
        return [part(item) for item in content if item is not None]
    return [] if content is None or content == "" else [part(content)]


def part(value: Any) -> Part:
    """One content part of any of the APIs."""
    if isinstance(value, str):
        return text(value)
    if not isinstance(value, Mapping):
        return generic(None, {"value": value})
    kind = value.get("type", "text" if "text" in value else None)
    read = _READERS.get(kind) if isinstance(kind, str) else None
    made = read(value) if read is not None else None
    return generic(kind, value) if made is None else made


def json_value(arguments: Any) -> Any:
    """The value that JSON text holds; the text itself where it is none, or none that can be written again."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = json_text.loads(arguments.encode())
        json_text.dumps(value)
    except ValueError:
        return arguments
    return value


def _identified(kind: str, call_id: Any, **fields: Any) -> Part:
    made: Part = {"type": kind}
    if isinstance(call_id, str):
        made["id"] = call_id
    return made | fields


def _name(name: Any) -> str:
    return name if isinstance(name, str) and name else "unknown"


def _result(response: Any) -> Any:
    if isinstance(response, list):
        return [part(item) for item in response]
    if isinstance(response, Mapping) and isinstance(response.get("type"), str):
        return part(response)
    return response


# ---------------------------------------------------------------------- the content types of the APIs


def _text(value: Mapping[str, Any]) -> Part | None:
    content = value.get("text")
    return text(content) if isinstance(content, str) else None


def _reasoning(value: Mapping[str, Any]) -> Part | None:
    texts = (value.get(key) for key in ("thinking", "reasoning", "text"))
    return next((reasoning(content) for content in texts if isinstance(content, str) and content), None)


def _compaction(value: Mapping[str, Any]) -> Part | None:
    kept = {key: value[key] for key in ("id", "content") if isinstance(value.get(key), str)}
    return {"type": "compaction", **kept}


def _url(key: str, modality: str) -> Callable[[Mapping[str, Any]], Part | None]:
    """Reader of `{key: url}` or `{key: {"url": url}}`, and of a file's id beside it."""

    def read(value: Mapping[str, Any]) -> Part | None:
        holder = value.get(key)
        source = holder.get("url") if isinstance(holder, Mapping) else holder
        return linked(source, modality) or uploaded(value.get("file_id"), modality)

    return read


def _source(modality: str) -> Callable[[Mapping[str, Any]], Part | None]:
    """Reader of Anthropic's `source`."""

    def read(value: Mapping[str, Any]) -> Part | None:
        source = value.get("source")
        if not isinstance(source, Mapping):
            return None
        kind, mime_type = source.get("type"), source.get("media_type")
        if kind == "base64":
            return inline(source.get("data"), modality, mime_type)
        if kind == "url":
            return linked(source.get("url"), modality, mime_type)
        if kind == "file":
            return uploaded(source.get("file_id"), modality, mime_type)
        data = source.get("data")
        return text(data) if kind == "text" and isinstance(data, str) else None

    return read


def _audio(value: Mapping[str, Any]) -> Part | None:
    inner = value.get("input_audio")
    return audio(inner if isinstance(inner, Mapping) else value)


def audio(value: Mapping[str, Any]) -> Part | None:
    """Sound in base64 with its `format` and `transcript`, or by the `id` of an earlier answer."""
    form = value.get("format")
    mime_type = f"audio/{'mpeg' if form == 'mp3' else form}" if isinstance(form, str) and form else None
    made = inline(value.get("data"), "audio", mime_type) or uploaded(value.get("id"), "audio")
    transcript = value.get("transcript")
    if made is not None and isinstance(transcript, str):
        made["transcript"] = transcript
    return made


def _file(value: Mapping[str, Any]) -> Part | None:
    inner = value.get("file")
    if not isinstance(inner, Mapping):
        inner = value
    data = inner.get("file_data")
    is_url = isinstance(data, str) and data[:5].lower() == "data:"
    made = (
        (linked(data, "document") if is_url else inline(data, "document"))
        or linked(inner.get("file_url"), "document")
        or uploaded(inner.get("file_id"), "document")
    )
    filename = inner.get("filename")
    if made is not None and isinstance(filename, str):
        made["filename"] = filename
    return made


_READERS: Final[dict[str, Callable[[Mapping[str, Any]], Part | None]]] = {
    "text": _text,
    "input_text": _text,
    "output_text": _text,
    "thinking": _reasoning,
    "reasoning": _reasoning,
    "reasoning_text": _reasoning,
    "summary_text": _reasoning,
    "compaction": _compaction,
    "image_url": _url("image_url", "image"),
    "input_image": _url("image_url", "image"),
    "computer_screenshot": _url("image_url", "image"),
    "video_url": _url("video_url", "video"),
    "audio_url": _url("audio_url", "audio"),
    "image": _source("image"),
    "document": _source("document"),
    "input_audio": _audio,
    "file": _file,
    "input_file": _file,
    "container_upload": _file,
}
