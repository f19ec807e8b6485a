"""The recipes of a Python file: which there are, and the table that one returns."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...base.errors import UserError, did_you_mean
from .arguments import Computed
from .python_files import Modules, PythonFile
from .python_operations import Value, read_literal
from .python_tools import needed_parameters, recipe_names
from .python_values import Answer, Reader

_MOST_NAMES = 12
_INSTEAD = "give the config that the run writes"


class PythonRecipe:
    """The recipes of a tool, its `form`, in a Python file; `library` and `answers` are as in `Reader`."""

    def __init__(
        self,
        form: str,
        text: str,
        where: str,
        library: Mapping[str, Any] | None = None,
        answers: Mapping[str, Answer] | None = None,
    ):
        self.where = where
        self._modules = Modules()
        self._file = self._modules.parse(text, Path(where).absolute(), where)
        self._names = recipe_names(self._file, form)
        self._reader = Reader(self._modules, self._file.path.parent, library or {}, answers or {})

    @property
    def notes(self) -> list[str]:
        """Lines on what was not followed."""
        return self._reader.notes

    def choose(self, name: str | None) -> str:
        """The recipe that is asked for, or the only one; a UserError of one line names them else."""
        names = self._names
        known = {*names, *self._file.functions, *self._file.constants}
        if name is not None and name not in known:
            raise UserError(f"--recipe {name}: not in {self.where}; {did_you_mean(name, names) or self._list_names()}")
        if name is None and not names:
            raise UserError(f"{self.where}: no function returns a recipe; {_INSTEAD}, or name a function with --recipe")
        if name is None and len(names) > 1:
            raise UserError(f"{self.where}: {self._list_names()}; name one with --recipe")
        return name or names[0]

    def _list_names(self) -> str:
        names = self._names
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return f"holds {len(names)} recipes: {', '.join(names[:_MOST_NAMES])}{more}"

    def read(self, name: str, settings: Mapping[str, str]) -> dict[str, Any]:
        """The table that a recipe returns; `settings` are values of its parameters.

        A UserError of one line if it returns none, or has no such parameter.
        """
        self._check_parameters(name, settings)
        self.notes.extend(f"{key} = {value}: from --set" for key, value in settings.items())
        try:
            found = self.look_up(name, self._file, settings)
        except RecursionError:
            raise UserError(f"{self.where}: {name}: is nested too deep") from None
        if not isinstance(found, dict):
            raise UserError(f"{self.where}: {name}: only running it tells what it returns; {_INSTEAD}")
        return found

    def _check_parameters(self, name: str, settings: Mapping[str, str]) -> None:
        node = self._file.functions.get(name)
        known = [one.arg for one in (*node.args.args, *node.args.kwonlyargs)] if node else []
        if wrong := [one for one in settings if one not in known]:
            wanted = did_you_mean(wrong[0], known) or f"parameters: {', '.join(known) or 'none'}"
            raise UserError(f"--set {wrong[0]}: neither an argument nor a parameter of {name}; {wanted}")
        if missing := [one for one in (needed_parameters(node) if node else ()) if one not in settings]:
            raise UserError(f"{self.where}: {name}: {missing[0]}: needs a value; give --set {missing[0]}=VALUE")

    def look_up(self, name: str, file: PythonFile, settings: Mapping[str, str] | None = None) -> Value:
        """What a constant of a file is, or what a function returns for these settings."""
        if name in file.functions:
            given = {key: read_literal(value) for key, value in (settings or {}).items()}
            return self._reader.call(name, file, [], given)
        return self._reader.constant(name, file) if name in file.constants else Computed(name)

    def with_package(self, file: PythonFile) -> list[PythonFile]:
        """A file, and that of its package where it is at hand."""
        package = self._modules.find(".", file)
        return [file] if package in (None, file) else [file, package]
