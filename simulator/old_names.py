"""Modules that moved can be imported by the names that our pages once gave them, with a DeprecationWarning."""

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from warnings import warn

_ROOT = __name__.rpartition(".")[0]

MOVED = {
    f"{_ROOT}.explain": f"{_ROOT}.answers.explain",
    f"{_ROOT}.recipes": f"{_ROOT}.formats.recipes",
    f"{_ROOT}.timeline.insight": f"{_ROOT}.insight",
    f"{_ROOT}.traces": f"{_ROOT}.formats.traces",
}
"""New names by old ones."""


class _OldNames(MetaPathFinder, Loader):
    """Finds a module by the name that another one has now."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """A spec for what moved, None for all else."""
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        """Let both names stand for one module, so that classes are the same."""
        new = sys.modules[module.__name__] = import_module(MOVED[module.__name__])
        warn(f"{module.__name__} is now {new.__name__}", DeprecationWarning, stacklevel=2)


def keep_old_names() -> None:
    """Let imports find what moved; more than one call changes nothing."""
    if not any(isinstance(finder, _OldNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OldNames())  # before folders that an earlier version left behind
