"""Files of Python, taken apart: functions, constants and imports of a module. Nothing of them is run or imported."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ...base.errors import UserError
from ...base.files import read_text

_MOST_FILES = 50
_RECIPE = ("ConfigContainer", "Partial")
_WORKLOADS = ("WorkloadBaseConfig", "replace")


@dataclass(frozen=True)
class Import:
    """A name of another module: `from module import name`, or the module itself where there is no name."""

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

    def recipes(self) -> list[str]:
        """Names of what returns or is a recipe, in the order of the file."""
        made = {node.name: node.lineno for node in self.functions.values() if _returns_recipe(node)}
        tables = {name: node.lineno for name, node in self.constants.items() if self._is_workload(name)}
        public = {name: line for name, line in (made | tables).items() if not name.startswith(("_", "BASE_"))}
        return sorted(public, key=public.__getitem__)

    def _is_workload(self, name: str, depth: int = 0) -> bool:
        """Whether a constant is a table of a benchmark's plan, or another name of one."""
        node = self.constants.get(name)
        if isinstance(node, ast.Name) and depth < 20:
            return self._is_workload(node.id, depth + 1)
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _WORKLOADS


def imports_of(body: list[ast.stmt]) -> dict[str, Import]:
    """Names that these statements import."""
    found: dict[str, Import] = {}
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.asname or alias.name: Import(node.module, alias.name) for alias in node.names}
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


def _returns_recipe(node: ast.FunctionDef) -> bool:
    returned = ast.unparse(node.returns).strip("'\"") if node.returns else ""
    needed = len(node.args.args) - len(node.args.defaults)
    return returned.rpartition(".")[2] in _RECIPE and needed == 0


class Modules:
    """Python files by path and by the name that an import has for them; each is read once."""

    def __init__(self) -> None:
        self._files: dict[Path, PythonFile] = {}

    def parse(self, text: str, path: Path, where: str) -> PythonFile:
        """The file with this text; a UserError of one line if it is no Python."""
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise UserError(f"{where}: is not Python: {' '.join(str(error).split())[:100]}") from None
        return self._files.setdefault(path, PythonFile(path, tree))

    def find(self, wanted: str, importer: PythonFile) -> PythonFile | None:
        """The file of a module with dots: below a folder above the importer's, or beside it; None without one."""
        parts = wanted.split(".")
        places = [folder.joinpath(*parts).with_suffix(".py") for folder in importer.path.parents]
        for place in (*places, importer.path.with_name(parts[-1] + ".py")):
            if place in self._files:
                return self._files[place]
            if place.is_file() and len(self._files) < _MOST_FILES:
                return self.parse(read_text(place, "a recipe"), place, str(place))
        return None
