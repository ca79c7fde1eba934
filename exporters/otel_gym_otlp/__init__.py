"""The mirror: payload-free copies of ended spans, on their way to any OTLP backend, never on anybody's request path.

Knows nothing of `otel_gym`. The names are imported when they are first used, so that a process without a mirror does
not pay for one; OTLP exporters are loaded by the mirror's own thread, when the first span is sent.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_gym_otlp.destinations import Destination
    from otel_gym_otlp.mirror import Mirror
    from otel_gym_otlp.receipt import Receipt

_HOMES = {"Destination": "destinations", "Mirror": "mirror", "Receipt": "receipt"}

__all__ = ["Destination", "Mirror", "Receipt"]


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
