"""The patch of `Starlette.__call__`: the one place that every launcher passes and that lies outside of authentication.

It is made once for the process. Which applications are captured stands on the applications themselves, or is decided
for all of them at the first connection of each. Nothing here loads more than the interpreter has: most processes that
are patched serve nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from otel_gym.asgi import ROUTE, TAKEN, App, Receive, Scope, Send

CAPTURE: Final = "_otel_gym_capture"
"""In the `vars` of an application: what captures it; None: it is left alone, whatever is done for all."""

_OF_ALL = "_otel_gym_capture_of_all"
_ORIGINAL = "_otel_gym_original"

_make_for_all: Callable[[App], App] | None = None


def capture_all(make: Callable[[App], App] | None) -> None:
    """Capture each application that has no word of its own, from its next connection on; None: no more.

    Args:
        make: from an application's original call to what captures it; called once for each application.
    """
    global _make_for_all
    _make_for_all = make


def captures_all() -> bool:
    """Whether applications are captured that have no word of their own."""
    return _make_for_all is not None


def patch(starlette: Any) -> None:
    """Patch the class `starlette.applications.Starlette`, or one that stands in its place; again changes nothing."""
    for base in starlette.__mro__:
        if base.__name__ == "Starlette" and base.__module__ == "starlette.applications":
            if _ORIGINAL not in vars(base):
                _patch(base)
            return


def original_call(app: Any) -> App:
    """The call of an application of a patched class, past all that captures it."""
    return functools.partial(getattr(type(app), _ORIGINAL), app)


def _patch(starlette: Any) -> None:
    original = starlette.__call__

    @functools.wraps(original)
    async def captured_call(self: Any, scope: Scope, receive: Receive, send: Send) -> None:
        own = vars(self)
        capture = own[CAPTURE] if CAPTURE in own else _capture_of_all(self, scope)
        if capture is None:
            await original(self, scope, receive, send)
        else:
            await capture(scope, receive, send)

    setattr(starlette, _ORIGINAL, original)
    starlette.__call__ = captured_call


def _capture_of_all(app: Any, scope: Scope) -> App | None:
    make = _make_for_all
    if make is None or TAKEN in scope or ROUTE in scope:  # a mounted application: the outermost one has it
        return None
    made: tuple[Any, App] | None = vars(app).get(_OF_ALL)
    if made is None or made[0] is not make:
        made = (make, make(original_call(app)))
        vars(app)[_OF_ALL] = made
    return made[1]
