"""Rows of tasks posted to an agent, one rollout row written for each, durably, as it comes: `otel-gym collect`.

    tasks → dispatch (agent) → result rows → row file

The names are imported when they are first used; the client needs the extra `client` (httpx).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_gym.collect.collection import Collection, Plan
    from otel_gym.collect.tally import Tally

_HOMES = {"Collection": "collection", "Plan": "collection", "Tally": "tally"}

__all__ = ["Collection", "Plan", "Tally"]


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
