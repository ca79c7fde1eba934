"""Capture for an application object, without a change to its middleware.

`Starlette.__call__` is the one place that every launcher passes and that lies outside of authentication, whenever
that is added. It is patched once for the process; which applications are captured stands on the applications
themselves.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

from otel_gym.asgi import Receive, Scope, Send
from otel_gym.middleware import CaptureMiddleware
from otel_gym.settings import Settings

A = TypeVar("A")

_CAPTURE = "_otel_gym_capture"
_PATCHED = "_otel_gym_patched"


def instrument(app: A, settings: Settings | None = None) -> A:
    """Capture the model calls of a FastAPI or Starlette application. Calling it again changes nothing.

    Args:
        app: the application, before or after its middleware and routes are added.
        settings: read from the environment when not given.

    Returns:
        the same application.

    Raises:
        SettingsError: capture is on and a setting cannot be used.
        TypeError: no Starlette application; any other ASGI application is wrapped: `CaptureMiddleware(app)`.
    """
    starlette = _starlette_class(app)
    if _CAPTURE not in vars(app):
        if not hasattr(starlette.__call__, _PATCHED):
            _patch(starlette)
        original = getattr(starlette.__call__, _PATCHED)
        setattr(app, _CAPTURE, CaptureMiddleware(functools.partial(original, app), settings))
    return app


def uninstrument(app: A) -> A:
    """Take the capture of an application away again; without one, nothing happens. Returns the application."""
    vars(app).pop(_CAPTURE, None)
    return app


def _starlette_class(app: object) -> Any:
    for base in type(app).__mro__:
        if base.__name__ == "Starlette" and base.__module__ == "starlette.applications":
            return base
    raise TypeError(
        f"instrument() takes a FastAPI or Starlette application, not {type(app).__name__}; "
        "wrap any other ASGI application: app = otel_gym.CaptureMiddleware(app)"
    )


def _patch(starlette: Any) -> None:
    original = starlette.__call__

    @functools.wraps(original)
    async def captured_call(self: Any, scope: Scope, receive: Receive, send: Send) -> None:
        capture = vars(self).get(_CAPTURE)
        if capture is None:
            await original(self, scope, receive, send)
        else:
            await capture(scope, receive, send)

    setattr(captured_call, _PATCHED, original)
    starlette.__call__ = captured_call
