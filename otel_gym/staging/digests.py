"""Digests of staged tokens, bit for bit those of NeMo Gym 0.7's workers.

Every digest is SHA-256 in lower-case hex over a domain, which has no length before it, and its values. Integers are
big-endian, unsigned, 64 bits wide unless said otherwise. Source: the staging contract, "Digests".
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from math import isfinite
from struct import pack
from typing import Any, Final

from otel_gym.staging.token_lists import MAX_UINT64, encode_log_probs, encode_mask, encode_token_ids

SCHEMA_VERSION: Final = 2
DIGEST_VERSION: Final = 2
EXTRAS_DIGEST_VERSION: Final = 1

_PREFIX_DOMAIN = b"nemo-gym-staging-prefix-v2"
_CHAIN_DOMAIN = b"nemo-gym-staging-chain-v1"
_EXTRAS_DOMAIN = b"nemo-gym-staging-extras-v1"
_CALL_DOMAIN = b"nemo-gym-staging-call-v2"

_SHA256 = re.compile(r"[0-9a-f]{64}")


def hash_token_ids(token_ids: Iterable[int]) -> str:
    """Digest of a whole token sequence: the cumulative hash of a call, or of a prefix.

    Raises:
        ValueError, TypeError: as `encode_token_ids`.
    """
    return hashlib.sha256(_PREFIX_DOMAIN + encode_token_ids(token_ids)).hexdigest()


def compute_chain_hash(parent_chain_hash: str | None, token_ids_delta: Iterable[int]) -> str:
    """Digest that chains a call's new tokens to its parent; None is the parent of a root.

    Raises:
        ValueError: the parent's hash is not 64 lower-case hex digits, or as `encode_token_ids`.
    """
    parent = b"\x00" if parent_chain_hash is None else b"\x01" + _raw_hash("parent_chain_hash", parent_chain_hash)
    return hashlib.sha256(_CHAIN_DOMAIN + parent + encode_token_ids(token_ids_delta)).hexdigest()


def compute_extras_digest(extras: dict[str, Any] | None) -> str:
    """Digest of the extras of a call: JSON's types only, and exactly those.

    Raises:
        ValueError: an int beyond 64 signed bits, a float that is not finite.
        TypeError: extras are no dict, or hold another type: tuple, bytes, numpy, a key that is no text.
        UnicodeEncodeError: a text with a lone surrogate.
    """
    if extras is not None and type(extras) is not dict:
        raise TypeError(f"extras are a dict or None, got {type(extras).__name__}")
    parts = [_EXTRAS_DOMAIN, bytes((EXTRAS_DIGEST_VERSION,))]
    _add_value(parts, extras)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def compute_staging_digest(
    *,
    schema_version: int,
    digest_version: int,
    extras_digest_version: int,
    rollout_id: str,
    model_call_id: str,
    parent_call_id: str | None,
    mode: str,
    prev_len: int,
    delta_len: int,
    cum_len: int,
    weight_version: int,
    token_ids_delta: Sequence[int],
    token_mask_delta: Sequence[float],
    generation_log_probs_delta: Sequence[float],
    extras_digest: str,
    chain_hash: str,
    cumulative_hash: str,
) -> str:
    """Digest of one staged call, over everything of its record but the extras, which have a digest of their own.

    Raises:
        ValueError: a value that contradicts another, is out of range, or is not of its exact type.
        TypeError: a hash or an id that is no text.
    """
    for name, value, wanted in (
        ("schema_version", schema_version, SCHEMA_VERSION),
        ("digest_version", digest_version, DIGEST_VERSION),
        ("extras_digest_version", extras_digest_version, EXTRAS_DIGEST_VERSION),
    ):
        if type(value) is not int or value != wanted:
            raise ValueError(f"{name} is {wanted}, got {value!r}")
    check_call(rollout_id, model_call_id, parent_call_id, mode, prev_len, delta_len, cum_len)
    check_uint64("weight_version", weight_version)
    if delta_len == 0:
        raise ValueError("a staged call has at least one new token, got delta_len 0")
    lengths = {len(token_ids_delta), len(token_mask_delta), len(generation_log_probs_delta)}
    if lengths != {delta_len}:
        raise ValueError(f"ids, mask and log probabilities are {delta_len} each, got {sorted(lengths)}")
    for name, text in (("chain_hash", chain_hash), ("cumulative_hash", cumulative_hash)):
        if text is None:
            raise TypeError(f"{name} is missing: 64 hex digits are wanted")

    digest = hashlib.sha256(_CALL_DOMAIN + bytes((SCHEMA_VERSION, DIGEST_VERSION, EXTRAS_DIGEST_VERSION)))
    digest.update(_text(rollout_id) + _text(model_call_id))
    digest.update(b"\x00" if parent_call_id is None else b"\x01" + _text(parent_call_id))
    digest.update(_text(mode))
    digest.update(b"".join(map(_uint64, (prev_len, delta_len, cum_len, weight_version))))
    mask, prompt = encode_mask(token_mask_delta)
    for encoded in (encode_token_ids(token_ids_delta), mask, encode_log_probs(generation_log_probs_delta, prompt)):
        digest.update(_uint64(len(encoded)))
        digest.update(encoded)
    digest.update(_raw_hash("extras_digest", extras_digest))
    digest.update(b"\x01" + _raw_hash("chain_hash", chain_hash))
    digest.update(b"\x01" + _raw_hash("cumulative_hash", cumulative_hash))
    return digest.hexdigest()


def check_call(
    rollout_id: str,
    model_call_id: str,
    parent_call_id: str | None,
    mode: str,
    prev_len: int,
    delta_len: int,
    cum_len: int,
) -> None:
    """What must hold between a call's identity, mode and lengths (tokens).

    Raises:
        ValueError: it does not; the message says what.
    """
    for name, text in (("rollout_id", rollout_id), ("model_call_id", model_call_id)):
        if not text:
            raise ValueError(f"{name} is empty")
    if parent_call_id is not None and not parent_call_id:
        raise ValueError("parent_call_id is empty: a root has none (null)")
    for name, length in (("prev_len", prev_len), ("delta_len", delta_len), ("cum_len", cum_len)):
        check_uint64(name, length)
    if mode not in ("text", "token_in"):
        raise ValueError(f"mode is 'text' or 'token_in', got {mode!r}")
    check_parent(parent_call_id, prev_len)
    if (mode == "text") != (parent_call_id is None):
        raise ValueError(f"mode {mode!r} {'has no parent' if mode == 'text' else 'needs a parent'}")
    check_sum(prev_len, delta_len, cum_len)


def check_parent(parent_call_id: str | None, prev_len: int) -> None:
    """A root has no tokens before it, a child has some.

    Raises:
        ValueError: parent and `prev_len` contradict each other.
    """
    if (parent_call_id is None) != (prev_len == 0):
        raise ValueError(f"prev_len is {prev_len}, and the parent {parent_call_id!r}: a root has neither, a child both")


def check_sum(prev_len: int, delta_len: int, cum_len: int) -> None:
    """Old and new tokens are all tokens.

    Raises:
        ValueError: they are not.
    """
    if cum_len != prev_len + delta_len:
        raise ValueError(f"cum_len is prev_len + delta_len, got {cum_len}, not {prev_len} + {delta_len}")


def check_uint64(name: str, value: object) -> None:
    """An exact int of 64 unsigned bits.

    Raises:
        ValueError: it is none.
    """
    if type(value) is not int or not 0 <= value <= MAX_UINT64:
        raise ValueError(f"{name} is an int between 0 and 2**64 - 1, got {value!r:.80}")


def is_sha256(text: object) -> bool:
    """Whether this is a digest as all of ours are written: 64 lower-case hex digits."""
    return type(text) is str and _SHA256.fullmatch(text) is not None


def _add_value(parts: list[bytes], value: object) -> None:
    kind = type(value)
    if value is None:
        parts.append(b"N")
    elif kind is bool:
        parts.append(b"B\x01" if value else b"B\x00")
    elif isinstance(value, int) and kind is int:
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"ints in extras fit 64 signed bits, got {value}")
        parts.append(b"I" + pack(">q", value))
    elif isinstance(value, float) and kind is float:
        if not isfinite(value):
            raise ValueError(f"floats in extras are finite, got {value!r}")
        parts.append(b"F" + pack(">d", value))
    elif isinstance(value, str) and kind is str:
        parts.append(b"S" + _text(value))
    elif isinstance(value, list) and kind is list:
        parts.append(b"L" + _uint64(len(value)))
        for item in value:
            _add_value(parts, item)
    elif isinstance(value, dict) and kind is dict:
        _add_dict(parts, value)
    else:
        raise TypeError(f"extras hold what JSON has: got {kind.__name__}")


def _add_dict(parts: list[bytes], value: dict[object, object]) -> None:
    keys = []
    for key in value:
        if type(key) is not str:
            raise TypeError(f"keys in extras are texts, got {type(key).__name__} {key!r:.80}")
        keys.append((key.encode("utf-8"), key))
    parts.append(b"D" + _uint64(len(keys)))
    for encoded, key in sorted(keys):
        parts.append(_uint64(len(encoded)) + encoded)
        _add_value(parts, value[key])


def _text(text: str) -> bytes:
    if type(text) is not str:
        raise TypeError(f"a text is wanted, got {type(text).__name__}")
    encoded = text.encode("utf-8")
    return _uint64(len(encoded)) + encoded


def _raw_hash(name: str, text: str) -> bytes:
    if not is_sha256(text):
        raise ValueError(f"{name} is 64 lower-case hex digits, got {text!r:.80}")
    return bytes.fromhex(text)


def _uint64(value: int) -> bytes:
    return value.to_bytes(8, "big")
