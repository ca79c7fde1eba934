"""The routed-experts codec: which experts of a mixture each token went through, as text.

`nrlre1:<int8|int16|int32>:<tokens>x<layers>x<topk>:<base64 of little-endian values>`. Nested lists, tokens of layers of
experts, are the legacy form. Source: the staging contract and its corpus.
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
from array import array
from typing import Any, Literal, NamedTuple

_HEADER = re.compile(r"nrlre1:(int8|int16|int32):([1-9][0-9]*)x([1-9][0-9]*)x([1-9][0-9]*):", re.ASCII)
_TYPECODES = {"int8": "b", "int16": "h", "int32": "i"}
_SWAPPED = sys.byteorder == "big"

RouteSpan = Literal["full", "tail", "sentinel"]
Routes = list[list[list[int]]]


class RoutedExperts(NamedTuple):
    """Decoded routes.

    Attributes:
        values: by token, layer and rank, the expert.
        dtype: `int8`, `int16`, `int32`, or `legacy-int` for nested lists.
        num_layers, topk: layers a token, experts a layer.
    """

    values: Routes
    dtype: str
    num_layers: int
    topk: int


def encode_routed_experts(values: Routes, dtype: str = "int16") -> str:
    """Routes as text.

    Raises:
        ValueError: no list of tokens, layers and experts of one shape, an item that is no int or does not fit, another
            dtype than `int8`, `int16` and `int32`.
    """
    code = _TYPECODES.get(dtype)
    if code is None:
        raise ValueError(f"dtype is one of {', '.join(_TYPECODES)}, got {dtype!r}")
    layers, topk = _shape(values)
    try:
        packed = array(code, [expert for token in values for layer in token for expert in layer])
    except OverflowError:
        raise ValueError(f"an expert does not fit {dtype}") from None
    if _SWAPPED:
        packed.byteswap()
    text = base64.b64encode(packed.tobytes()).decode("ascii")
    return f"nrlre1:{dtype}:{len(values)}x{layers}x{topk}:{text}"


def decode_routed_experts(payload: str | Routes) -> RoutedExperts:
    """Routes from text, or from nested lists.

    Raises:
        ValueError: neither, or a text whose data is not what its header says.
    """
    if isinstance(payload, list):
        layers, topk = _shape(payload)
        return RoutedExperts([[list(layer) for layer in token] for token in payload], "legacy-int", layers, topk)
    dtype, tokens, layers, topk, data = _parse(payload)
    packed = array(_TYPECODES[dtype])
    try:
        raw = base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ValueError(f"routed experts are base64 behind their header: {error}") from None
    if len(raw) != tokens * layers * topk * packed.itemsize:
        raise ValueError(f"{tokens}x{layers}x{topk} experts of {dtype} are not {len(raw)} bytes")
    packed.frombytes(raw)
    if _SWAPPED:
        packed.byteswap()
    flat = packed.tolist()
    rows = [flat[start : start + topk] for start in range(0, len(flat), topk)]
    return RoutedExperts([rows[start : start + layers] for start in range(0, len(rows), layers)], dtype, layers, topk)


def routed_experts_token_count(payload: str | list[Any]) -> int:
    """How many tokens have routes: by the header alone, or by the length of the list.

    Raises:
        ValueError: no header that can be read, an empty list, another type.
    """
    if isinstance(payload, list):
        if not payload:
            raise ValueError("routed experts of no token")
        return len(payload)
    return _parse(payload)[1]


def classify_route_span(carry_len: int, generation_len: int, staged_route_len: int) -> RouteSpan:
    """Which tokens of a call the staged routes stand for.

    Args:
        carry_len: new tokens of the prompt.
        generation_len: generated tokens.
        staged_route_len: tokens with routes.

    Returns:
        `full` for all new tokens, `tail` for at least as many as were generated, `sentinel` where they are too few to
        say anything.

    Raises:
        ValueError: a length is no int, or negative.
    """
    for name, length in (
        ("carry_len", carry_len),
        ("generation_len", generation_len),
        ("staged_route_len", staged_route_len),
    ):
        if type(length) is not int or length < 0:
            raise ValueError(f"{name} is an int from 0, got {length!r}")
    if staged_route_len == 0:
        return "sentinel"
    if staged_route_len == carry_len + generation_len:
        return "full"
    return "tail" if 0 < generation_len <= staged_route_len else "sentinel"


def _parse(payload: object) -> tuple[str, int, int, int, str]:
    match = _HEADER.match(payload) if isinstance(payload, str) else None
    if match is None:
        raise ValueError(f"routed experts begin with nrlre1:<dtype>:<tokens>x<layers>x<topk>:, got {payload!r:.80}")
    dtype, tokens, layers, topk = match.groups()
    return dtype, int(tokens), int(layers), int(topk), match.string[match.end() :]


def _shape(values: object) -> tuple[int, int]:
    """Layers and experts a layer of nested lists of one shape, tokens first."""
    shapes = set()
    tokens = values if isinstance(values, list) else []
    for token in tokens:
        layers = token if isinstance(token, list) else []
        for layer in layers:
            experts = layer if isinstance(layer, list) else []
            if {type(expert) for expert in experts} != {int}:
                raise ValueError("routed experts are ints in lists: tokens of layers of experts")
            shapes.add((len(layers), len(experts)))
        if not layers:
            raise ValueError("routed experts: a token without layers")
    if len(shapes) != 1:
        raise ValueError(f"routed experts have one shape, tokens x layers x experts; got {len(shapes)} shapes")
    return shapes.pop()
