"""What is to be done to a module that others import: at once where it is loaded, else when it is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Hook = Callable[[ModuleType], None]


def when_imported(hooks: Mapping[str, Hook]) -> None:
    """Hand each of these modules, by its name, to its hook. A hook must stand being called again, and raise nothing."""
    [finder] = [found for found in sys.meta_path if isinstance(found, _Finder)] or [_Finder()]
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)
    finder.hooks.update(hooks)
    for name, hook in hooks.items():
        module = sys.modules.get(name)
        if module is not None:
            hook(module)


class _Finder:
    """Stands first in `sys.meta_path`; imports of modules that have no hook pass by."""

    def __init__(self) -> None:
        self.hooks: dict[str, Hook] = {}

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        hook = self.hooks.get(name)
        if hook is None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    loader: Any = _HookingLoader(spec.loader, hook)  # it has what a loader has
                    spec.loader = loader
                return spec
        return None


class _HookingLoader:
    """The loader of a module, which hands it to its hook when it is loaded."""

    def __init__(self, loader: Any, hook: Hook) -> None:
        self._loader = loader
        self._hook = hook

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
        self._hook(module)
