"""Capture without a change to the server's code: one switch for all that the ASGI servers of a process serve.

The entry points of the package, and `otel-gym run`, turn it. The environment is read when a server takes its
application: without a word of capture there the application is served as it is; a setting that cannot be used fails
the start of that server. A process that serves nothing pays for one small hook on the import of servers, and hears
nothing of us.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

from otel_gym import served, starlette_call
from otel_gym.asgi import App
from otel_gym.import_hooks import when_imported

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import ModuleType

    from otel_gym.settings import Settings

# One of these in the environment says that capture is a matter here; `Settings` decides, once something is served.
SWITCHES = ("OTEL_GYM_MODEL_CALL_CAPTURE_DIR", "OTEL_GYM_OBSERVABILITY_ENABLED", "OTEL_GYM_CONFIG_FILE")

FAILED_START: Final = 3
"""Exit code of a server whose settings cannot be used: uvicorn's own, and the one that gunicorn does not try again."""


def activate(settings: Settings | None = None) -> None:
    """Capture every application that an ASGI server of this process takes from now on.

    Args:
        settings: read from the environment, once something is served, when not given; nothing is done to an
            application where the environment has none of `SWITCHES` then.
    """
    if settings is not None or not served.captures_all():
        served.capture_all(_maker(settings), _switched if settings is None else lambda: True)
    hooks: dict[str, Callable[[ModuleType], None]] = {**served.HOOKS, "starlette.applications": _starlette}
    when_imported({name: _harmless(hook) for name, hook in hooks.items()})


def deactivate() -> None:
    """No more; applications that `instrument` was called for stay captured."""
    served.capture_all(None)


def plugin() -> None:
    """Entry point of vLLM (`vllm.general_plugins`) and SGLang (`sglang.srt.plugins`), run in each of their processes.

    Does something only where the environment says a word of capture: the plugin is there because otel-gym is.
    """
    if _switched():
        _harmlessly(activate)


class OtelGymInstrumentor:
    """Entry point of `opentelemetry-instrument` (`opentelemetry_instrumentor`).

    It has the interface of that package's `BaseInstrumentor` without being one: the package need not be installed.
    """

    @property
    def is_instrumented_by_opentelemetry(self) -> bool:
        """Whether it is switched on."""
        return served.captures_all()

    def instrumentation_dependencies(self) -> Collection[str]:
        """Nothing that has to be there first."""
        return ()

    def instrument(self, *, settings: Settings | None = None, **_options: Any) -> None:
        """Switch capture on for the process. Options of other instrumentors are passed over."""
        _harmlessly(lambda: activate(settings))

    def uninstrument(self, **_options: Any) -> None:
        """Switch it off again."""
        _harmlessly(deactivate)


def _switched() -> bool:
    return any(os.environ.get(name, "").strip() for name in SWITCHES)


def _harmlessly(act: Callable[[], None]) -> None:
    """Whatever goes wrong with us, the process starts."""
    try:
        act()
    except Exception:
        import logging  # otherwise nobody's cost

        logging.getLogger(__name__).exception("otel-gym could not be switched on: nothing is captured")


def _harmless(hook: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    return lambda module: _harmlessly(lambda: hook(module))


def _starlette(applications: ModuleType) -> None:
    starlette_call.patch_starlette(applications.Starlette)


def _maker(settings: Settings | None) -> Callable[[App], App]:
    def make(app: App) -> App:
        from otel_gym.errors import OtelGymError
        from otel_gym.middleware import CaptureMiddleware  # what serving needs, loaded where something is served

        if isinstance(app, CaptureMiddleware):
            return app
        try:
            return CaptureMiddleware(app, settings)
        except OtelGymError as error:  # a server that should capture and cannot must not come up
            sys.stderr.write(f"otel-gym: {error}\n")
            raise SystemExit(FAILED_START) from None

    return make
