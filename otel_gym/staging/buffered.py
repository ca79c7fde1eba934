"""One call through a worker that stages tokens: the client's request, what the worker is asked, what the client gets.

Pure: the server around it sends, waits, records and replays. `docs/staging.md` has the order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from otel_gym.staging.backend import chat_request, custom_tools, worker_request
from otel_gym.staging.namespaces import Namespaces
from otel_gym.staging.records import CaptureAdmission
from otel_gym.staging.replay import converted, failure_events, replayed


class BufferedCall:
    """A call of any dialect, answered as a whole by a worker that speaks chat.

    Args:
        dialect: of the client: `chat`, `responses` or `messages`.
        request: the client's, as it came.

    Attributes:
        stream: whether the client asked for a stream.
        chat: the request as the backend gets it, tools under flat names.
        answer_id: of a failed answer; an answer has the id that the worker's answer gives it.

    Raises:
        ConversionError: the request cannot be said to a chat backend; the client's own mistake, or something that it
            asks of another server.
    """

    def __init__(self, dialect: str, request: Mapping[str, Any], answer_id: str = "resp_0") -> None:
        self.dialect = dialect
        self.request = request
        self.stream = request.get("stream") is True
        self.answer_id = answer_id
        self._namespaces = Namespaces()
        flat = self._namespaces.flattened(dialect, request)
        self._custom_tools = custom_tools(flat) if dialect == "responses" else frozenset()
        self.chat = chat_request(dialect, flat)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation, for a `CallLedger`."""
        found = self.chat.get("messages")
        return [message for message in found if isinstance(message, dict)] if isinstance(found, list) else []

    def worker_request(self, admission: CaptureAdmission) -> dict[str, Any]:
        """What the worker is asked."""
        return worker_request(self.chat, admission)

    def answer(self, worker_answer: Mapping[str, Any]) -> dict[str, Any]:
        """The client's answer, without internal fields, with its own names of tools.

        Raises:
            ConversionError: it cannot be said in the client's dialect.
        """
        answer = _with_custom_calls(worker_answer, self._custom_tools)
        return converted(self.dialect, self._namespaces.restored(answer), self.request)

    def events(self, answer: Mapping[str, Any]) -> list[bytes]:
        """All events of an answer, in order.

        Raises:
            ConversionError: something of it is no JSON.
        """
        return replayed(self.dialect, answer, self.request)

    def failure(self, message: str) -> list[bytes]:
        """The events that end a stream which has no answer; `message` is for the client."""
        return list(failure_events(self.dialect, message, self.request, self.answer_id))


def _with_custom_calls(answer: Mapping[str, Any], names: frozenset[str]) -> Mapping[str, Any]:
    """The answer with calls of custom tools as such: the backend knew them as functions of one argument."""
    choices = answer.get("choices")
    if not names or not isinstance(choices, list):
        return answer
    return {**answer, "choices": [_custom_choice(choice, names) for choice in choices]}


def _custom_choice(choice: Any, names: frozenset[str]) -> Any:
    message = choice.get("message") if isinstance(choice, Mapping) else None
    calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    if not isinstance(message, Mapping) or not isinstance(calls, list):
        return choice
    return {**choice, "message": {**message, "tool_calls": [_custom_call(call, names) for call in calls]}}


def _custom_call(call: Any, names: frozenset[str]) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or function.get("name") not in names:
        return call
    arguments = function.get("arguments")
    try:
        text = json.loads(arguments)["input"] if isinstance(arguments, str) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        text = None
    return {
        "id": call.get("id"),
        "type": "custom",
        "custom": {"name": function["name"], "input": text if isinstance(text, str) else arguments},
    }
