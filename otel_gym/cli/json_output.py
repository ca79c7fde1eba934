"""One JSON object on stdout with one long array in it, written as its items come."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_MAX_LEVELS = 200


def print_json(
    head: Mapping[str, Any], name: str, items: Iterable[Mapping[str, Any]], tail: Callable[[], Mapping[str, Any]]
) -> None:
    """Print `{head..., name: [items...], tail...}`, one item a line, in ASCII.

    Args:
        head: the keys before the array.
        name: the key of the array.
        items: its items; they are asked for one by one.
        tail: gives the keys after the array, once the items have been seen.
    """
    write = sys.stdout.write
    write("{" + "".join(f"{json.dumps(key)}: {_encode(value)}, " for key, value in head.items()))
    write(f"{json.dumps(name)}: [")
    separator = "\n"
    for item in items:
        write(separator + _encode(item))
        separator = ",\n"
    write("\n]" if separator != "\n" else "]")
    write("".join(f",\n{json.dumps(key)}: {_encode(value)}" for key, value in tail().items()) + "}\n")


def _encode(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):  # a captured "nan" is a number to the reader; JSON has no word for it
        return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any, levels: int = _MAX_LEVELS) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (dict, list)) and not levels:
        return "(nested too deep to be shown)"
    if isinstance(value, dict):
        return {key: _plain(item, levels - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, levels - 1) for item in value]
    return value
