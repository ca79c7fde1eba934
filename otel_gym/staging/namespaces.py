"""Namespaced tools: flat names for a backend that knows no namespaces, the client's own names back.

A client groups tools as `{"type": "namespace", "name": "crm", "tools": [...]}` and calls them by name and `namespace`;
the backend knows each as `crm__<name>`. In a chat answer the namespace stands in the function, in a Messages answer in
the `tool_use` block, in a response in the call's item, each beside the name. Source: the staging contract, "Server
side".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from otel_gym.errors import ConversionError

SEPARATOR: Final = "__"


def flat_name(name: str, namespace: str | None) -> str:
    """The one name that stands for a tool, namespaced or not."""
    return name if not namespace else f"{namespace}{SEPARATOR}{name}"


class Namespaces:
    """The namespaced tools of one request.

    Attributes:
        by_flat_name: flat name → (namespace, name). Only these are restored: a tool that its client called `a__b`
            stays `a__b`.
    """

    def __init__(self) -> None:
        self.by_flat_name: dict[str, tuple[str, str]] = {}

    def flattened(self, dialect: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """The request with flat names in its tools, its tool choice and the calls of its history.

        Args:
            dialect: `chat`, `responses` or `messages`; which decides where names stand.
            request: is not changed.

        Raises:
            ConversionError: two tools would have the same flat name, or a namespace is no object with name and tools.
        """
        flat = dict(request)
        if isinstance(request.get("tools"), list):
            flat["tools"] = list(self._tools(dialect, request["tools"]))
        if isinstance(request.get("tool_choice"), Mapping):
            flat["tool_choice"] = self._choice(dialect, request["tool_choice"])
        history = "input" if dialect == "responses" else "messages"
        if isinstance(request.get(history), list):
            flat[history] = [_flat_calls(dialect, entry) for entry in request[history]]
        return flat

    def restored(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """A chat answer of the backend with the client's names; what is given is not changed."""
        choices = answer.get("choices")
        if not self.by_flat_name or not isinstance(choices, list):
            return dict(answer)
        return {**answer, "choices": [self._restored_choice(choice) for choice in choices]}

    # ------------------------------------------------------------------ there

    def _tools(self, dialect: str, tools: Iterable[Any]) -> Iterator[Any]:
        taken: dict[str, str] = {}
        for tool in tools:
            if not isinstance(tool, Mapping) or tool.get("type") != "namespace":
                if (name := _name(dialect, tool)) is not None:
                    _take(taken, name, f"the tool {name!r}")
                yield tool
                continue
            namespace, inner = tool.get("name"), tool.get("tools")
            if not isinstance(namespace, str) or not namespace or not isinstance(inner, list):
                raise ConversionError(f"a namespace has a name and a list of tools, got {tool!r:.200}")
            for member in inner:
                name = _name(dialect, member)
                if not name:
                    raise ConversionError(f"a tool of namespace {namespace!r:.80} has no name")
                flat = flat_name(name, namespace)
                _take(taken, flat, f"{name!r} of namespace {namespace!r}")
                self.by_flat_name[flat] = (namespace, name)
                yield _named(dialect, member, flat)

    def _choice(self, dialect: str, choice: Mapping[str, Any]) -> dict[str, Any]:
        if choice.get("type") == "allowed_tools":
            if dialect == "chat" and isinstance(choice.get("allowed_tools"), Mapping):
                return {
                    **choice,
                    "allowed_tools": self._choice(dialect, {**choice["allowed_tools"], "type": "allowed_tools"}),
                }
            tools = choice.get("tools")
            if isinstance(tools, list):
                return {**choice, "tools": [one for tool in tools for one in self._allowed(dialect, tool)]}
        return _flat_call(dialect, choice)

    def _allowed(self, dialect: str, tool: Any) -> list[Any]:
        if not isinstance(tool, Mapping):
            return [tool]
        if tool.get("type") != "namespace":
            return [_flat_call(dialect, tool)]
        members = [flat for flat, (namespace, _) in self.by_flat_name.items() if namespace == tool.get("name")]
        return [
            _named(dialect, {"type": "function", "function": {}} if dialect == "chat" else {"type": "function"}, flat)
            for flat in members
        ]

    # ------------------------------------------------------------------ back

    def _restored_choice(self, choice: Any) -> Any:
        message = choice.get("message") if isinstance(choice, Mapping) else None
        if not isinstance(message, Mapping):
            return choice
        calls, legacy = message.get("tool_calls"), message.get("function_call")
        changed = dict(message)
        if isinstance(calls, list):
            changed["tool_calls"] = [self._restored_call(call) for call in calls]
        if isinstance(legacy, Mapping):
            changed["function_call"] = self._restored_function(legacy)
        return {**choice, "message": changed}

    def _restored_call(self, call: Any) -> Any:
        for kind in ("function", "custom"):
            if isinstance(call, Mapping) and isinstance(call.get(kind), Mapping):
                return {**call, kind: self._restored_function(call[kind])}
        return call

    def _restored_function(self, function: Mapping[str, Any]) -> dict[str, Any]:
        found = self.by_flat_name.get(str(function.get("name")))
        if found is None:
            return dict(function)
        namespace, name = found
        return {**function, "name": name, "namespace": namespace}


def _take(taken: dict[str, str], name: str, who: str) -> None:
    if name in taken and taken[name] != who:
        raise ConversionError(f"{who} and {taken[name]} have the same name for the backend, {name!r}: rename one")
    taken[name] = who


def _flat_calls(dialect: str, entry: Any) -> Any:
    """An entry of the history with flat names: an item, or a message with calls in it."""
    if not isinstance(entry, Mapping):
        return entry
    if dialect == "responses":
        return _flat_call(dialect, entry)
    place = "tool_calls" if dialect == "chat" else "content"
    flat = dict(entry)
    if isinstance(entry.get(place), list):
        flat[place] = [_flat_call(dialect, call) if isinstance(call, Mapping) else call for call in entry[place]]
    if dialect == "chat" and isinstance(entry.get("function_call"), Mapping):
        flat["function_call"] = _flat(entry["function_call"])
    return flat


def _flat_call(dialect: str, call: Mapping[str, Any]) -> dict[str, Any]:
    if dialect != "chat":
        return _flat(call)
    return {
        key: _flat(value) if key in ("function", "custom") and isinstance(value, Mapping) else value
        for key, value in call.items()
    }


def _flat(named: Mapping[str, Any]) -> dict[str, Any]:
    """What has a name, and perhaps a namespace, with its flat name alone."""
    flat = {key: value for key, value in named.items() if key != "namespace"}
    name, namespace = named.get("name"), named.get("namespace")
    if isinstance(name, str) and isinstance(namespace, str):
        flat["name"] = flat_name(name, namespace)
    return flat


def _name(dialect: str, tool: Any) -> str | None:
    named = tool
    if dialect == "chat" and isinstance(tool, Mapping):
        named = tool.get("function") or tool.get("custom")
    name = named.get("name") if isinstance(named, Mapping) else None
    return name if isinstance(name, str) else None


def _named(dialect: str, tool: Mapping[str, Any], name: str) -> dict[str, Any]:
    if dialect != "chat":
        return {**tool, "name": name}
    kind = "custom" if isinstance(tool.get("custom"), Mapping) else "function"
    return {**tool, kind: {**(tool.get(kind) or {}), "name": name}}
