"""Capture without a change to the server's code: one switch for all Starlette and FastAPI applications of a process.

The entry points of the package, and `otel-gym run`, turn it. The settings are read when an application is first
connected to (its lifespan, as a rule): a setting that cannot be used then fails the start of that server. A process
that serves nothing pays for one small hook on the import of Starlette, and hears nothing of us.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from otel_gym import starlette_call
from otel_gym.asgi import App, Receive, Scope, Send

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from otel_gym.settings import Settings

# One of these in the environment says that capture is a matter here; `Settings` decides, once something is served.
SWITCHES = ("OTEL_GYM_MODEL_CALL_CAPTURE_DIR", "OTEL_GYM_OBSERVABILITY_ENABLED", "OTEL_GYM_CONFIG_FILE")

_APPLICATIONS = "starlette.applications"


def activate(settings: Settings | None = None) -> None:
    """Capture every Starlette and FastAPI application of this process, made before or after.

    Args:
        settings: read from the environment, once something is served, when not given.
    """
    if settings is not None or not starlette_call.captures_all():
        starlette_call.capture_all(_maker(settings))
    applications = sys.modules.get(_APPLICATIONS)
    if applications is not None:
        _patch(applications)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def deactivate() -> None:
    """No more; applications that `instrument` was called for stay captured."""
    starlette_call.capture_all(None)


def plugin() -> None:
    """Entry point of vLLM (`vllm.general_plugins`) and SGLang (`sglang.srt.plugins`), run in each of their processes.

    Does something only where the environment says a word of capture: the plugin is there because otel-gym is.
    """
    if any(os.environ.get(name, "").strip() for name in SWITCHES):
        _harmlessly(activate)


class OtelGymInstrumentor:
    """Entry point of `opentelemetry-instrument` (`opentelemetry_instrumentor`).

    It has the interface of that package's `BaseInstrumentor` without being one: the package need not be installed.
    """

    @property
    def is_instrumented_by_opentelemetry(self) -> bool:
        """Whether it is switched on."""
        return starlette_call.captures_all()

    def instrumentation_dependencies(self) -> Collection[str]:
        """Nothing that has to be there first."""
        return ()

    def instrument(self, *, settings: Settings | None = None, **_options: Any) -> None:
        """Switch capture on for the process. Options of other instrumentors are passed over."""
        _harmlessly(lambda: activate(settings))

    def uninstrument(self, **_options: Any) -> None:
        """Switch it off again."""
        _harmlessly(deactivate)


def _harmlessly(act: Callable[[], None]) -> None:
    """Whatever goes wrong with us, the process starts."""
    try:
        act()
    except Exception:
        import logging  # otherwise nobody's cost

        logging.getLogger(__name__).exception("otel-gym could not be switched on: nothing is captured")


def _maker(settings: Settings | None) -> Callable[[App], App]:
    def make(app: App) -> App:
        try:
            from otel_gym.middleware import CaptureMiddleware  # what serving needs, loaded where something is served

            return CaptureMiddleware(app, settings)
        except Exception as error:  # noqa: BLE001  (a server that should capture and cannot must not come up)
            return _Refusal(error)

    return make


class _Refusal:
    """In the place of an application whose capture cannot work."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from otel_gym.errors import OtelGymError
        from otel_gym.refusal import refuse

        if not isinstance(self.error, OtelGymError):  # no setting: what it is shows in its traceback alone
            import logging

            logging.getLogger(__name__).error("otel-gym cannot capture", exc_info=self.error)
        await refuse(self.error, scope, receive, send)


def _patch(applications: ModuleType) -> None:
    starlette = getattr(applications, "Starlette", None)
    if starlette is not None:
        _harmlessly(lambda: starlette_call.patch(starlette))


class _Finder:
    """Stands first in `sys.meta_path` and patches Starlette when it is imported; all other imports pass by."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _APPLICATIONS:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _PatchingLoader(spec.loader)  # type: ignore[assignment]  # it has what a loader has
                return spec
        return None


class _PatchingLoader:
    """The loader of a module, which patches it when it is loaded."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # As if we had never been here: what reads a module's source asks its loader.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _patch(module)
