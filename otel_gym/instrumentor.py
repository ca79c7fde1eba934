"""Capture for an application object, without a change to its middleware."""

from __future__ import annotations

from typing import TypeVar

from otel_gym import starlette_call
from otel_gym.middleware import CaptureMiddleware
from otel_gym.settings import Settings

A = TypeVar("A")


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
    if vars(app).get(starlette_call.CAPTURE) is None:
        starlette_call.patch(starlette)
        capture = CaptureMiddleware(starlette_call.original_call(app), settings)
        setattr(app, starlette_call.CAPTURE, capture)
    return app


def uninstrument(app: A) -> A:
    """Take the capture of an application away again, also what zero-code instrumentation does for all.

    Returns the application.
    """
    setattr(app, starlette_call.CAPTURE, None)
    return app


def _starlette_class(app: object) -> type:
    for base in type(app).__mro__:
        if base.__name__ == "Starlette" and base.__module__ == "starlette.applications":
            return base
    raise TypeError(
        f"instrument() takes a FastAPI or Starlette application, not {type(app).__name__}; "
        "wrap any other ASGI application: app = otel_gym.CaptureMiddleware(app)"
    )
