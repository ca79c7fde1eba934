"""Where each ASGI server takes the application that it serves: outside of all that the application's code has.

What lies further in is no place for zero-code capture: authentication may stand around a Starlette application, or in
the `__call__` of a subclass, and would let a path pass that still has its prefix. A server that is not known here gets
its application as it is: nothing captured, no prefix removed.

Nothing here loads more than the interpreter has: most processes that are hooked serve nothing.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from otel_gym.asgi import App, Receive, Scope, Send

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

CAPTURE: Final = "_otel_gym_capture"
"""In the `vars` of an application: it has a word of its own, and is left alone, whatever is done for all."""

SERVERS: Final = "uvicorn, gunicorn, hypercorn and granian"

_HOOKED = "_otel_gym_hooked"

_make_for_all: Callable[[App], App] | None = None
_wanted: Callable[[], bool] = bool


def capture_all(make: Callable[[App], App] | None, wanted: Callable[[], bool] = bool) -> None:
    """Capture each application that a server takes from now on and that has no word of its own; None: no more.

    Args:
        make: from an application to what captures it, or to the application itself; called once for each server.
        wanted: whether that is to be done, asked when a server takes an application.
    """
    global _make_for_all, _wanted
    _make_for_all, _wanted = make, wanted


def captures_all() -> bool:
    """Whether that is switched on, wanted or not."""
    return _make_for_all is not None


def capture_is_wanted() -> bool:
    """Whether an application that a server takes now, and that has no word of its own, is captured."""
    return captures_all() and _wanted()


def take(app: App) -> App:
    """What a server is to serve in this application's place.

    Raises:
        Exception: as `make` does; a server that should capture and cannot must not come up.
    """
    make = _make_for_all
    if make is None or not _wanted() or CAPTURE in _vars(app):
        return app
    capture = make(app)
    return app if capture is app else _Served(app, capture)


class _Served:
    """An application and what captures it, as long as that is wanted."""

    def __init__(self, app: App, capture: App) -> None:
        self.app = app
        self._own = _vars(app)
        self._capture = capture
        self._root_path = self._own.get("root_path")  # of a FastAPI application, which tells it to each scope later on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _make_for_all is None or CAPTURE in self._own:
            await self.app(scope, receive, send)
            return
        if self._root_path:
            scope = {**scope, "root_path": self._root_path}
        await self._capture(scope, receive, send)


def _vars(app: Any) -> dict[str, Any]:
    """The attributes of an application, which may be any callable."""
    found: dict[str, Any] = getattr(app, "__dict__", {})
    return found


# ---- how to stand there, for each server: its module, and what is done to it


def _uvicorn(module: ModuleType) -> None:
    """Its command, its workers, gunicorn's `UvicornWorker`, `uvicorn.run`, and so vLLM, SGLang, LiteLLM."""

    def loading(original: Any) -> Any:
        def load(self: Any) -> None:
            original(self)
            outermost = self.loaded_app
            if type(outermost).__name__ == "ProxyHeadersMiddleware" and self.proxy_headers:
                outermost.app = take(outermost.app)  # uvicorn's own; inside of it the client has its address
            else:
                self.loaded_app = take(outermost)

        return load

    _replace(module.Config, "load", loading)


def _gunicorn(module: ModuleType) -> None:
    """gunicorn's own ASGI worker."""

    def loading(original: Any) -> Any:
        def load_wsgi(self: Any) -> None:
            original(self)
            self.asgi = take(self.asgi)

        return load_wsgi

    _replace(module.ASGIWorker, "load_wsgi", loading)


def _hypercorn(module: ModuleType) -> None:
    """Its command, its workers, and `hypercorn.asyncio.serve`."""

    def wrapping(original: Any) -> Any:
        def init(self: Any, app: App) -> None:
            original(self, take(app))

        return init

    _replace(module.ASGIWrapper, "__init__", wrapping)


def _granian(module: ModuleType) -> None:
    """The two that it calls the application through: for its lifespan, and for each connection."""

    def wrapping_lifespan(original: Any) -> Any:
        def init(self: Any, callable: App) -> None:  # noqa: A002  (granian's word)
            original(self, take(callable))

        return init

    def wrapping(original: Any) -> Any:
        def callback_wrapper(callback: App, *args: Any, **kwargs: Any) -> Any:
            return original(take(callback), *args, **kwargs)

        return callback_wrapper

    _replace(module.LifespanProtocol, "__init__", wrapping_lifespan)
    _replace(module, "_callback_wrapper", wrapping)


HOOKS: Final[dict[str, Callable[[ModuleType], None]]] = {
    "uvicorn.config": _uvicorn,
    "gunicorn.workers.gasgi": _gunicorn,
    "hypercorn.app_wrappers": _hypercorn,
    "granian.asgi": _granian,
}


def _replace(holder: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put what is made of it in the place of a function; again changes nothing."""
    original = getattr(holder, name)
    if not hasattr(original, _HOOKED):
        made = functools.wraps(original)(make(original))
        setattr(made, _HOOKED, True)
        setattr(holder, name, made)
