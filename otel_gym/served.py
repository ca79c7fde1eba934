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
#
# A server may be on its way already: many import the application, whose code or plugin switches capture on, in the
# middle of what is hooked. So the last step before it serves is hooked as well, or instead.


def _uvicorn_config(module: ModuleType) -> None:
    """Its command, its workers, gunicorn's `UvicornWorker`, `uvicorn.run`, and so vLLM, SGLang, LiteLLM."""

    def loading(original: Any) -> Any:
        def load(self: Any) -> None:
            original(self)
            _take_loaded(self)

        return load

    _replace(module.Config, "load", loading)


def _uvicorn_server(module: ModuleType) -> None:
    def starting(original: Any) -> Any:
        async def startup(self: Any, *args: Any, **kwargs: Any) -> None:
            _take_loaded(self.config)
            await original(self, *args, **kwargs)

        return startup

    _replace(module.Server, "startup", starting)


def _take_loaded(config: Any) -> None:
    """What a `uvicorn.Config` has loaded; inside of uvicorn's own middleware, where the client has its address."""
    outermost = config.loaded_app
    if config.proxy_headers and type(outermost).__name__ == "ProxyHeadersMiddleware":
        outermost.app = _taken_once(outermost.app)
    else:
        config.loaded_app = _taken_once(outermost)


def _gunicorn(module: ModuleType) -> None:
    """gunicorn's own ASGI worker."""

    def running(original: Any) -> Any:
        def run(self: Any) -> None:
            self.asgi = _taken_once(self.asgi)
            original(self)

        return run

    _replace(module.ASGIWorker, "run", running)


def _hypercorn(module: ModuleType) -> None:
    """Its command, its workers, and `hypercorn.asyncio.serve`."""

    def wrapping(original: Any) -> Any:
        def init(self: Any, app: App) -> None:
            original(self, take(app))

        return init

    _replace(module.ASGIWrapper, "__init__", wrapping)


def _granian_lifespan(module: ModuleType) -> None:
    def wrapping(original: Any) -> Any:
        def init(self: Any, callable: App) -> None:  # noqa: A002  (granian's word)
            original(self, take(callable))

        return init

    _replace(module.LifespanProtocol, "__init__", wrapping)


def _granian(module: ModuleType) -> None:
    """Its workers of each kind, which have the function by a name of their own."""

    def wrapping(original: Any) -> Any:
        def callback_wrapper(callback: App, *args: Any, **kwargs: Any) -> Any:
            return original(take(callback), *args, **kwargs)

        return callback_wrapper

    _replace(module, "_asgi_call_wrap", wrapping)


HOOKS: Final[dict[str, Callable[[ModuleType], None]]] = {
    "uvicorn.config": _uvicorn_config,
    "uvicorn.server": _uvicorn_server,
    "gunicorn.workers.gasgi": _gunicorn,
    "hypercorn.app_wrappers": _hypercorn,
    "granian.asgi": _granian_lifespan,
    "granian.server.mp": _granian,
    "granian.server.mt": _granian,
    "granian.server.embed": _granian,
}


def _taken_once(app: App) -> App:
    return app if isinstance(app, _Served) else take(app)


def _replace(holder: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put what is made of it in the place of a function; again changes nothing."""
    original = getattr(holder, name)
    if not hasattr(original, _HOOKED):
        made = functools.wraps(original)(make(original))
        setattr(made, _HOOKED, True)
        setattr(holder, name, made)
