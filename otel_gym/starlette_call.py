"""The patch of `Starlette.__call__`: what `instrument` stands on, and where a server is noticed that nobody hooked.

Every launcher passes it. But authentication may stand further out, so that nothing is captured here without a word of
the application's own: `otel_gym.served` has the place for all. Nothing here loads more than the interpreter has.
"""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple

from otel_gym.asgi import ROUTE, TAKEN, App, Receive, Scope, Send
from otel_gym.served import CAPTURE, SERVERS, capture_is_wanted

_ORIGINAL = "_otel_gym_original"
_FRAMEWORKS: Final = frozenset({"fastapi.applications", "starlette.applications"})
_PREFIX = "/ng-rollout/"  # as `correlation` has it, which processes that serve nothing do without

_told = False


class Word(NamedTuple):
    """What an application has under `CAPTURE` in its `vars`, if not None: it is left alone.

    Attributes:
        place: the class in whose `__call__` the application is captured.
        capture: what captures it.
    """

    place: type
    capture: App


def place(app: object) -> type | None:
    """The class whose `__call__` is to be patched for this application; None: it is no Starlette application.

    That of Starlette, which lies outside of all middleware; but the outermost that is no framework's, where a subclass
    has one: it may hold authentication. FastAPI's own only puts its `root_path` into the scope.
    """
    mro = type(app).__mro__
    starlette = next((base for base in mro if _is_starlette(base)), None)
    if starlette is None:
        return None
    outermost = next(base for base in mro if "__call__" in vars(base))
    return starlette if outermost.__module__ in _FRAMEWORKS else outermost


def patch(cls: Any) -> None:
    """Patch this class; again changes nothing."""
    if _ORIGINAL not in vars(cls):
        _patch(cls)


def patch_starlette(starlette: Any) -> None:
    """Patch the class `starlette.applications.Starlette`, or one that stands in its place."""
    for base in starlette.__mro__:
        if _is_starlette(base):
            patch(base)
            return


def original_call(app: Any, cls: Any) -> App:
    """The call of an application, past what captures it in a patched class."""
    return functools.partial(vars(cls)[_ORIGINAL], app)


def _is_starlette(cls: type) -> bool:
    return cls.__name__ == "Starlette" and cls.__module__ == "starlette.applications"


def _patch(cls: Any) -> None:
    original = cls.__call__

    @functools.wraps(original)
    async def captured_call(self: Any, scope: Scope, receive: Receive, send: Send) -> None:
        own = vars(self)
        if CAPTURE in own:
            word: Word | None = own[CAPTURE]
            if word is not None and word.place is cls:
                await word.capture(scope, receive, send)
                return
        elif TAKEN not in scope and ROUTE not in scope and not _told:
            _look_for_prefix(scope)
        await original(self, scope, receive, send)

    setattr(cls, _ORIGINAL, original)
    cls.__call__ = captured_call


def _look_for_prefix(scope: Scope) -> None:
    """Say once that something serves which nobody hooked: its paths keep their prefix, and nothing is captured."""
    global _told
    if _PREFIX not in scope.get("path", "") or not capture_is_wanted():
        return
    _told = True
    import logging  # otherwise nobody's cost

    logging.getLogger(__name__).warning(
        "otel-gym: %.300r is not captured, and keeps its prefix: this server is none of %s, where capture can stand "
        "outside of all authentication; put it there in the code: app = otel_gym.CaptureMiddleware(app) (said once)",
        scope["path"],
        SERVERS,
    )
