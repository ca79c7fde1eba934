"""otel-gym: every model call of a rollout becomes one OpenTelemetry span and one durable record.

The names are imported when they are first used: `import otel_gym` alone loads neither the OpenTelemetry SDK nor
pydantic.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from otel_gym._version import __version__

if TYPE_CHECKING:
    from otel_gym.correlation import current_rollout_id
    from otel_gym.instrumentor import instrument, uninstrument
    from otel_gym.middleware import CaptureMiddleware
    from otel_gym.rollouts.context import rollout
    from otel_gym.settings import Settings

_HOMES = {
    "CaptureMiddleware": "middleware",
    "Settings": "settings",
    "current_rollout_id": "correlation",
    "instrument": "instrumentor",
    "rollout": "rollouts.context",
    "uninstrument": "instrumentor",
}

__all__ = [
    "CaptureMiddleware",
    "Settings",
    "__version__",
    "current_rollout_id",
    "instrument",
    "rollout",
    "uninstrument",
]


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
