"""New `model_call_id`s: random, from the system, drawn in stock.

Each draw from the system lets go of the interpreter, and a busy event loop may wait for it for milliseconds. Not from
`random`, whose state forked workers share; a forked child throws its parent's stock away.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Final

_BYTES: Final = 16
_STOCK: Final = 256

_ready: deque[str] = deque()


def new_call_id() -> str:
    """32 lower-case hex characters that no other call has. From any thread."""
    try:
        return _ready.popleft()
    except IndexError:
        drawn = os.urandom(_BYTES * _STOCK).hex()
        first, *rest = (drawn[start : start + 2 * _BYTES] for start in range(0, len(drawn), 2 * _BYTES))
        _ready.extend(rest)
        return first


os.register_at_fork(after_in_child=_ready.clear)
