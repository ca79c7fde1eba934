"""The real SDKs, with a transport that answers with given bytes: what their parsers make of an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx2
from anthropic import Anthropic
from openai import OpenAI

from otel_gym.staging.replay import json_bytes

MODEL: Any = "m"
ASKED: Any = [{"role": "user", "content": "hi"}]


class Answers:
    """A server without a network: the next answer to whoever asks."""

    def __init__(self) -> None:
        self.body = b""
        self.media_type = ""
        # A client of its own for each answer would cost more than all parsing.
        http_client = httpx2.Client(transport=httpx2.MockTransport(self._answered))
        own: dict[str, Any] = {"api_key": "none", "base_url": "http://m", "max_retries": 0, "http_client": http_client}
        self._openai = OpenAI(**own)
        self._anthropic = Anthropic(**own)

    def _answered(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": self.media_type}, content=self.body)

    def openai(self, body: bytes, media_type: str = "text/event-stream") -> OpenAI:
        self.body, self.media_type = body, media_type
        return self._openai

    def anthropic(self, body: bytes, media_type: str = "text/event-stream") -> Anthropic:
        self.body, self.media_type = body, media_type
        return self._anthropic


_answers = Answers()
openai, anthropic = _answers.openai, _answers.anthropic


def whole(dialect: str, answer: Mapping[str, Any]) -> Any:
    """What the SDK reads in an answer without streaming."""
    body = json_bytes(answer)
    if dialect == "chat":
        return openai(body, "application/json").chat.completions.create(model=MODEL, messages=ASKED)
    if dialect == "responses":
        return openai(body, "application/json").responses.create(model=MODEL, input=ASKED)
    return anthropic(body, "application/json").messages.create(model=MODEL, messages=ASKED, max_tokens=9)


def streamed(dialect: str, events: Sequence[bytes]) -> Any:
    """What the SDK puts together from a stream, by its own helper."""
    body = b"".join(events)
    if dialect == "chat":
        with openai(body).chat.completions.stream(model=MODEL, messages=ASKED) as chat:
            chat.until_done()
            return chat.current_completion_snapshot
    if dialect == "responses":
        last = None
        with openai(body).responses.stream(model=MODEL, input=ASKED) as responses:
            for event in responses:
                last = event
        assert last is not None
        assert last.type in ("response.completed", "response.incomplete")
        return last.response
    with anthropic(body).messages.stream(model=MODEL, messages=ASKED, max_tokens=9) as messages:
        return messages.get_final_message()


def dump(value: Any) -> Any:
    """An SDK's object as JSON, without what its streaming helpers add."""
    return _without_additions(value.to_dict(mode="json", exclude_unset=False))


def _without_additions(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_additions(item)
            for key, item in value.items()
            if item is not None and key not in ("parsed", "parsed_arguments", "parsed_output", "index")
        }
    return [_without_additions(item) for item in value] if isinstance(value, list) else value
