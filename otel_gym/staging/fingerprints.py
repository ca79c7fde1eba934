"""What a conversation is, whatever dialect it comes in: how a call is known as the continuation of another.

A fingerprint is taken of chat messages, as the backend gets them. Reasoning and ids of tool calls are no part of it, as
clients drop the ones and rename the others; text may stand in one part or several; arguments are compared as JSON; a
namespaced tool has its flat name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from otel_gym.staging.namespaces import flat_name

FINGERPRINT_VERSION: Final = 1

_DOMAIN = b"otel-gym-conversation-v1"
_ROLES = {"developer": "system", "function": "tool"}


def output_fingerprint(message: Mapping[str, Any]) -> str:
    """Of one answer's message."""
    return hashlib.sha256(_DOMAIN + _canonical(message)).hexdigest()


def continuation_fingerprint(messages: Sequence[Mapping[str, Any]], answer: Mapping[str, Any]) -> str:
    """Of the conversation that a call leaves behind: what it was asked, and its answer's message."""
    state = _begun()
    for message in (*messages, answer):
        state = _continued(state, message)
    return state.hex()


def continued_fingerprints(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Of every earlier answer in a conversation, the last one's first: any call that left one of them is a parent."""
    found = []
    state = _begun()
    for message in messages:
        state = _continued(state, message)
        if message.get("role") == "assistant":
            found.append(state.hex())
    return reversed(found)


def _begun() -> bytes:
    return hashlib.sha256(_DOMAIN).digest()


def _continued(state: bytes, message: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(state + _canonical(message)).digest()


def _canonical(message: Mapping[str, Any]) -> bytes:
    texts, parts = _content(message.get("content"))
    refusal = message.get("refusal")
    calls = message.get("tool_calls") or []
    if not calls and message.get("function_call"):
        calls = [{"function": message["function_call"]}]
    role = str(message.get("role"))
    said = [
        _ROLES.get(role, role),
        texts + (refusal if isinstance(refusal, str) else ""),
        parts,
        [_call(call) for call in calls if isinstance(call, Mapping)],
    ]
    return json.dumps(said, sort_keys=True, separators=(",", ":"), default=repr).encode("ascii")


def _content(content: Any) -> tuple[str, list[Any]]:
    """All text as one, and the parts that are none."""
    if isinstance(content, str):
        return content, []
    texts, others = [], []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            others.append(part)
    return "".join(texts), others


def _call(call: Mapping[str, Any]) -> list[Any]:
    function, custom = call.get("function"), call.get("custom")
    if isinstance(custom, Mapping):
        return [_name(custom), {"input": custom.get("input")}]
    if not isinstance(function, Mapping):
        return [None, None]
    return [_name(function), _arguments(function.get("arguments"))]


def _name(called: Mapping[str, Any]) -> Any:
    name, namespace = called.get("name"), called.get("namespace")
    return flat_name(name, namespace) if isinstance(name, str) and isinstance(namespace, str) else name


def _arguments(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    if not arguments.strip():
        return {}
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
