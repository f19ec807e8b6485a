"""Files of Python, taken apart: functions, constants and imports of a module. Nothing of them is run or imported."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from warnings import catch_warnings, simplefilter

from ...base.errors import UserError
from ...base.files import MOST_SETTINGS, read_text

_MOST_FILES = 50


@dataclass(frozen=True)
class Import:
    """A name of another module: `from module import name`, or the module itself where there is no name.

    A module begins with dots where it is named by its place: `.`, `..common`.
    """

    module: str
    name: str | None

    @property
    def text(self) -> str:
        """The name, or the module, as a text with dots."""
        return self.name or self.module


@dataclass
class PythonFile:
    """A module by its text; `path` is where it lies, in which folders its imports are looked for."""

    path: Path
    tree: ast.Module
    values: dict[str, object] = field(default_factory=dict)
    """Values of its constants that were read."""

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef]:
        """Functions of the module by name."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}

    @cached_property
    def classes(self) -> set[str]:
        """Names of its classes."""
        return {node.name for node in self.tree.body if isinstance(node, ast.ClassDef)}

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        """What the module assigns to names."""
        return dict(_assignments(self.tree.body))

    @cached_property
    def imports(self) -> dict[str, Import]:
        """Names that the module imports."""
        return imports_of(self.tree.body)


def imports_of(body: list[ast.stmt]) -> dict[str, Import]:
    """Names that these statements import."""
    found: dict[str, Import] = {}
    for node in body:
        if isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found |= {alias.asname or alias.name: Import(module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= dict(_modules(node))
    return found


def _modules(node: ast.Import) -> Iterator[tuple[str, Import]]:
    for alias in node.names:
        root = alias.name.partition(".")[0]
        yield (alias.asname, Import(alias.name, None)) if alias.asname else (root, Import(root, None))


def _assignments(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for node in body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                yield target.id, node.value


def _places(wanted: str, importer: Path) -> Iterator[Path]:
    """Where the file of a module may lie: by its place, else below a folder above the importer's, or beside it."""
    bare = wanted.lstrip(".")
    parts, level = bare.split(".") if bare else [], len(wanted) - len(bare)
    for folder in importer.parents[level - 1 : level] if level else importer.parents:
        if parts:
            yield folder.joinpath(*parts).with_suffix(".py")
        yield folder.joinpath(*parts, "__init__.py")
    if not level:
        yield importer.with_name(parts[-1] + ".py")


class Modules:
    """Python files by path and by the name that an import has for them; each is read once."""

    def __init__(self) -> None:
        self._files: dict[Path, PythonFile] = {}

    def parse(self, text: str, path: Path, where: str) -> PythonFile:
        """The file with this text; a UserError of one line if it is no Python."""
        try:
            with catch_warnings():
                simplefilter("ignore")  # what Python would warn of in the recipe
                tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise UserError(f"{where}: is not Python: {' '.join(str(error).split())[:100]}") from None
        return self._files.setdefault(path, PythonFile(path, tree))

    def find(self, wanted: str, importer: PythonFile) -> PythonFile | None:
        """The file of a module; None where it is not at hand."""
        for place in _places(wanted, importer.path):
            if place in self._files:
                return self._files[place]
            if place.is_file() and len(self._files) < _MOST_FILES:
                return self.parse(read_text(place, "a recipe", MOST_SETTINGS), place, str(place))
        return None
