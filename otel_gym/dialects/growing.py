"""JSON values that are still growing while a stream is read.

A text comes in pieces, a list element by element under indices that may come in any order or leave gaps. Both stay
what they are here until `settle` makes plain JSON of them, so that long streams cost linear time; and what came from an
event is copied before it is changed, so that the event can be read again.
"""

from __future__ import annotations

from typing import Any, Final


class Pieces(list[str]):
    """A text in pieces."""


class Gaps(dict[int, Any]):
    """A list whose elements stand under their own indices; sorted when it settles."""


class Own(dict[str, Any]):
    """An object that is ours to change."""


_GROWING: Final = (Pieces, Gaps, Own)


def own(container: dict[Any, Any], key: object, made: dict[str, Any]) -> Own:
    """The object under `key`, ours; a copy of `made` where there is none."""
    value = container.get(key)
    if isinstance(value, Own):
        return value
    value = Own(value if isinstance(value, dict) else made)
    container[key] = value
    return value


def gaps(container: dict[Any, Any], key: str) -> Gaps:
    """The list under `key`, ours; an empty one where there is none."""
    value = container.get(key)
    if isinstance(value, Gaps):
        return value
    value = Gaps(enumerate(value)) if isinstance(value, list) else Gaps()
    container[key] = value
    return value


def pieces(container: dict[Any, Any], key: object) -> Pieces:
    """The text under `key` as pieces; none where there is no text."""
    value = container.get(key)
    if isinstance(value, Pieces):
        return value
    value = Pieces([value] if isinstance(value, str) else [])
    container[key] = value
    return value


def overlay(old: Any, new: Any) -> Any:
    """The later word about a value over the earlier one; what grew in the stream stays where the later is empty."""
    if isinstance(old, Pieces):
        return new if isinstance(new, str) and new else old
    if isinstance(old, Gaps):
        if not isinstance(new, list) or not new:
            return old
        return Gaps((index, overlay(old.get(index), value)) for index, value in enumerate(new))
    if isinstance(old, Own):
        if not isinstance(new, dict):
            return old
        if old.get("type") == new.get("type"):
            grown = {key: overlay(value, new.get(key)) for key, value in old.items() if isinstance(value, _GROWING)}
            return Own({**new, **grown})
    return new


def settle(value: Any) -> Any:
    """Plain JSON of a value that has stopped growing; surrogates are `mending`'s business."""
    if isinstance(value, Pieces):
        return "".join(value)
    if isinstance(value, Gaps):
        return [settle(value[index]) for index in sorted(value)]
    if isinstance(value, Own):
        return {key: settle(inner) for key, inner in value.items()}
    return value
