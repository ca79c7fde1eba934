"""Run by each Python that a command under `otel-gym run` starts: this directory stands first in its PYTHONPATH.

Switches capture on, then runs the sitecustomize that would have run without us. It may be read by any Python 3, in
any environment, so it needs nothing but the interpreter; where otel-gym is not installed it says so to a server.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120  (pathlib costs every start some milliseconds)


class _Warner:
    """Says that this Python has no otel-gym, when an ASGI server or Starlette is imported: others hear nothing."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in ("starlette.applications", "uvicorn.config", "hypercorn.app_wrappers", "granian.asgi"):
            sys.meta_path.remove(self)
            sys.stderr.write(
                f"otel-gym: nothing is captured in process {os.getpid()}: otel-gym cannot be imported by "
                f"{sys.executable} ({_reason}); install it there\n"
            )


_reason = ""
try:
    from otel_gym import zero_code

    zero_code.OtelGymInstrumentor().instrument()
except Exception as error:  # noqa: BLE001  (whatever it is, the process starts)
    _reason = repr(error)
    sys.meta_path.insert(0, _Warner())

_others = [path for path in sys.path if os.path.realpath(path) != _HERE]
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _spec is not None and _spec.loader is not None:
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
