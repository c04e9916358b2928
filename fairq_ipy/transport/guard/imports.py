"""Seeing a library when it is imported later: a finder in front of all others that finds nothing by itself."""

from __future__ import annotations

import importlib.abc
import logging
import sys
from collections.abc import Callable, Collection, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["LateImports"]

log = logging.getLogger(__name__)


class LateImports(importlib.abc.MetaPathFinder):
    """Tells of certain modules once they are imported.

    Args:
        names: of the modules.
        ready: called with each, right after its own code has run and before its importer goes on.
    """

    def __init__(self, names: Collection[str], ready: Callable[[ModuleType], None]) -> None:
        self._names = frozenset(names)
        self._ready = ready

    def begin(self) -> None:
        """Look from now on."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def end(self) -> None:
        """Look no more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what the other finders find, with a loader that tells when it is done; ``None`` for other modules."""
        if fullname not in self._names or self not in sys.meta_path:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Telling(spec.loader, self._ready)
                return spec
        return None


class _Telling(importlib.abc.Loader):
    """A loader that tells when its module is there. The module never sees it: it gets the loader that it would have."""

    def __init__(self, loader: Any, ready: Callable[[ModuleType], None]) -> None:  # noqa: ANN401 - any kind of loader
        self._loader = loader
        self._ready = ready

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else that loader can do
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave it to the loader."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave it to the loader, and tell."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        try:
            self._ready(module)
        except Exception:
            # the import itself went well, and must not fail for what somebody wants to know about it
            log.exception("%s cannot be looked after", module.__name__)
