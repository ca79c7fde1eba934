"""The lists of a call, checked and encoded as a whole, in C: 100,000 tokens take milliseconds.

Ids are big-endian unsigned 64 bits, mask and log probabilities IEEE-754 float32 big-endian, each list behind its count.
The types are exact: a bool is no token id, an int no log probability, numpy's numbers are neither.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import compress
from math import isfinite
from operator import countOf
from typing import Any

MAX_UINT64 = 2**64 - 1

_SWAPPED = sys.byteorder == "little"
# Big-endian, 1.0 is 3f f0 and six zero bytes as a double, 3f 80 00 00 as a float32.
_SECOND_OF_DOUBLE = bytes(0xF0 if byte == 0x3F else 0 for byte in range(256))
_SECOND_OF_SINGLE = bytes(0x80 if byte == 0x3F else 0 for byte in range(256))
_IS_PROMPT = bytes(byte != 0x3F for byte in range(256))


def encode_token_ids(token_ids: Iterable[int]) -> bytes:
    """Count and each id, 8 bytes each.

    Raises:
        ValueError: an item is no int (bools and numpy's are none) or does not fit 64 unsigned bits.
        TypeError: not iterable.
    """
    ids = token_ids if isinstance(token_ids, list) else list(token_ids)
    _check_types("token ids", ids, int)
    try:
        encoded = array("Q", ids)
    except OverflowError:
        odd = next(item for item in ids if not 0 <= item <= MAX_UINT64)
        raise ValueError(f"token ids are between 0 and 2**64 - 1, got {odd}") from None
    return len(ids).to_bytes(8, "big") + _big_endian(encoded)


def encode_mask(mask: Sequence[float]) -> tuple[bytes, bytes]:
    """Count and each value, 4 bytes each; and a byte for each token, 1 where it is of the prompt.

    Raises:
        ValueError: a value is neither 0.0 nor 1.0, or no float.
    """
    _check_types("values of the mask", mask, float)
    doubles = _big_endian(array("d", mask))
    first = doubles[0::8]
    wanted = bytearray(len(doubles))
    wanted[0::8] = first
    wanted[1::8] = first.translate(_SECOND_OF_DOUBLE)
    if wanted == doubles and not first.translate(None, b"\x00\x3f"):
        singles = bytearray(4 * len(mask))
        singles[0::4] = first
        singles[1::4] = first.translate(_SECOND_OF_SINGLE)
        encoded = bytes(singles)
    else:  # a -0.0 is 0.0
        odd = next((value for value in mask if value not in (0.0, 1.0)), None)
        if odd is not None:
            raise ValueError(f"the mask is 0.0 for tokens of the prompt and 1.0 for generated ones, got {odd!r}")
        encoded = _big_endian(array("f", mask))
    return len(mask).to_bytes(8, "big") + encoded, first.translate(_IS_PROMPT)


def encode_log_probs(log_probs: Sequence[float], prompt: bytes) -> bytes:
    """Count and each value, 4 bytes each.

    Args:
        log_probs: of each token, 0.0 for those of the prompt.
        prompt: a byte for each token, 1 where it is of the prompt.

    Raises:
        ValueError: a value is no float, not finite, too large for 32 bits, or another than 0.0 for a prompt's token.
    """
    _check_types("log probabilities", log_probs, float)
    if any(compress(log_probs, prompt)):
        raise ValueError("a token of the prompt (mask 0.0) has no log probability but 0.0")
    encoded = _big_endian(array("f", log_probs))
    first = encoded[0::4]
    # Infinities and NaN begin with 7f or ff, and so do finite values beyond 1.7e38.
    if b"\x7f" in first or b"\xff" in first:
        odd = next((value for value in log_probs if not isfinite(array("f", (value,))[0])), None)
        if odd is not None:
            raise ValueError(f"log probabilities are finite and fit a 32-bit float, got {odd!r}")
    return len(log_probs).to_bytes(8, "big") + encoded


def _check_types(what: str, values: Sequence[Any], wanted: type) -> None:
    if countOf(map(type, values), wanted) != len(values):
        odd = next(value for value in values if type(value) is not wanted)
        raise ValueError(f"{what} are of type {wanted.__name__}, got {type(odd).__name__} {odd!r:.80}")


def _big_endian(values: array[Any]) -> bytes:
    if _SWAPPED:
        values.byteswap()
    return values.tobytes()
