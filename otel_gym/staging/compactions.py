"""Compaction of the Responses API, with a backend that speaks chat: the worker's model sums up, as a call of its own.

A client asks for it with a last item `{"type": "compaction_trigger"}`, and gets an item `{"type": "compaction"}`, whose
`encrypted_content` is opaque to it and means something only to the server that made it. From then on the item stands
for what was said before it. Source: OpenAI's guide on compaction and the types of its SDK.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from otel_gym.errors import ConversionError

REQUEST: Final = (
    "Sum up this conversation for whoever goes on with it and sees nothing of it but what the user said and your "
    "summary: what is wanted and under which conditions, what has been done and found, with every name, path, number "
    "and result that is still needed, and what is left to do. Answer with the summary alone."
)
"""What the model is asked in the client's place."""

_TRIGGER = "compaction_trigger"
_ITEMS = frozenset({"compaction", "compaction_summary"})  # the second is the first's older name
_KEPT_ROLES = frozenset({"user", "system", "developer"})
_SEAL = "otel-gym-compaction-1:"


def wants_compaction(request: Mapping[str, Any]) -> bool:
    """Whether a Responses request asks for a compaction instead of an answer."""
    given = request.get("input")
    return isinstance(given, list) and bool(given) and _kind(given[-1]) == _TRIGGER


def is_compaction(item: Mapping[str, Any]) -> bool:
    """Whether an item stands for what was said before it."""
    return item.get("type") in _ITEMS


def left_by_compaction(items: Sequence[Any]) -> list[Any]:
    """What is left of an input: before its last compaction only what users and developers have said.

    The API itself answers a compaction so; clients may send the rest of the history along or not.
    """
    last = max((number for number, item in enumerate(items) if _kind(item) in _ITEMS), default=0)
    return [item for item in items[:last] if _is_kept(item)] + list(items[last:])


def compaction_item(summary: str, item_id: str) -> dict[str, Any]:
    """The item that a summary becomes. It hides nothing: the client has the conversation that is summed up."""
    sealed = base64.b64encode(summary.encode("utf-8")).decode("ascii")
    return {"type": "compaction", "id": item_id, "encrypted_content": f"{_SEAL}{sealed}"}


def summary_of(item: Mapping[str, Any]) -> str:
    """The summary in an item that `compaction_item` made.

    Raises:
        ConversionError: another server made it, or it is damaged; nobody here knows what it stands for.
    """
    content = item.get("encrypted_content")
    if isinstance(content, str) and content.startswith(_SEAL):
        try:
            return base64.b64decode(content.removeprefix(_SEAL), validate=True).decode("utf-8")
        except ValueError:
            pass
    raise ConversionError("a compaction can be read only by the server that made it, which is not this one")


def _kind(item: Any) -> Any:
    return item.get("type") if isinstance(item, Mapping) else None


def _is_kept(item: Any) -> bool:
    return not isinstance(item, Mapping) or (
        item.get("type", "message") == "message" and item.get("role") in _KEPT_ROLES
    )
