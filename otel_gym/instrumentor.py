"""Capture for an application object, without a change to its middleware."""

from __future__ import annotations

from typing import TypeVar

from otel_gym import starlette_call
from otel_gym.middleware import CaptureMiddleware
from otel_gym.served import CAPTURE
from otel_gym.settings import Settings

A = TypeVar("A")


def instrument(app: A, settings: Settings | None = None) -> A:
    """Capture the model calls of a FastAPI or Starlette application. Calling it again changes nothing.

    The prefix is removed outside of the application's middleware and of a subclass's own `__call__`; what is put around
    the application sees it: there `CaptureMiddleware` belongs outermost.

    Args:
        app: the application, before or after its middleware and routes are added.
        settings: read from the environment when not given.

    Returns:
        the same application.

    Raises:
        SettingsError: capture is on and a setting cannot be used.
        TypeError: no Starlette application; any other ASGI application is wrapped: `CaptureMiddleware(app)`.
    """
    place = starlette_call.place(app)
    if place is None:
        raise TypeError(
            f"instrument() takes a FastAPI or Starlette application, not {type(app).__name__}; "
            "wrap any other ASGI application: app = otel_gym.CaptureMiddleware(app)"
        )
    if vars(app).get(CAPTURE) is None:
        starlette_call.patch(place)
        capture = CaptureMiddleware(starlette_call.original_call(app, place), settings)
        setattr(app, CAPTURE, starlette_call.Word(place, capture))
    return app


def uninstrument(app: A) -> A:
    """Take the capture of an application away again, also what zero-code instrumentation does for all.

    Returns the application.
    """
    setattr(app, CAPTURE, None)
    return app
