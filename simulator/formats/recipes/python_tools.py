"""Which tool's recipes a Python file holds, and which names of it are recipes."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .python_files import PythonFile


@dataclass(frozen=True)
class _Tool:
    """What is a tool's own: packages that its recipes import, names that they use, what their functions return.

    `returns` is a pattern of an annotation, `calls` of what a function without one calls; `tables` are calls that make
    a recipe without a function.
    """

    packages: tuple[str, ...]
    returns: str
    calls: str = ""
    names: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


_PLANS = "WorkloadBaseConfig"
_TOOLS = {
    "bridge": _Tool(
        ("megatron.bridge",), r"ConfigContainer", r"\w+_config|ConfigContainer", (_PLANS,), (_PLANS, "replace")
    ),
    "nemo": _Tool(("nemo", "nemo_run"), r"(.*\.)?Partial", r"(.*\.)?(pretrain_recipe|finetune_recipe|Partial)"),
    "torchtitan": _Tool(("torchtitan",), r".*", names=("model_registry",)),
}


def is_python(where: str) -> bool:
    """Whether a file is Python, by its name."""
    return where.endswith(".py")


def recognize_python(file: PythonFile) -> str | None:
    """The tool whose packages or names a file uses; None where it is none that is known here."""
    modules = [f"{module}." for module in _modules(file)]
    names = {node.id for node in ast.walk(file.tree) if isinstance(node, ast.Name)}
    for form, tool in _TOOLS.items():
        packages = tuple(f"{package}." for package in tool.packages)
        if names & set(tool.names) or any(module.startswith(packages) for module in modules):
            return form
    return None


def _modules(file: PythonFile) -> Iterator[str]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def recipe_names(file: PythonFile, form: str) -> list[str]:
    """Names of what returns or is a recipe of a tool, in the order of the file."""
    tool = _TOOLS[form]
    made = {node.name: node.lineno for node in file.functions.values() if _returns_recipe(node, tool)}
    tables = {name: node.lineno for name, node in file.constants.items() if _is_table(file, name, tool.tables)}
    public = {name: line for name, line in (made | tables).items() if not name.startswith(("_", "BASE_"))}
    return sorted(public, key=public.__getitem__)


def _returns_recipe(node: ast.FunctionDef, tool: _Tool) -> bool:
    """Whether a function needs no arguments and returns something, of the type that is wanted or made by such calls."""
    annotation = ast.unparse(node.returns).strip("'\"") if node.returns else ""
    returns = any(isinstance(part, ast.Return) and part.value is not None for part in ast.walk(node))
    calls = [ast.unparse(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)]
    made = not annotation and tool.calls and any(re.fullmatch(tool.calls, call) for call in calls)
    of_type = bool(made) or re.fullmatch(tool.returns, annotation) is not None
    return not needed_parameters(node) and returns and of_type


def needed_parameters(node: ast.FunctionDef) -> list[str]:
    """The parameters of a function that have no default."""
    args = node.args
    placed = [*args.posonlyargs, *args.args]
    named = [one for one, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default is None]
    return [one.arg for one in (*placed[: len(placed) - len(args.defaults)], *named)]


def _is_table(file: PythonFile, name: str, calls: tuple[str, ...], depth: int = 0) -> bool:
    """Whether a constant is made by one of these calls, or is another name of one."""
    node = file.constants.get(name)
    if isinstance(node, ast.Name) and depth < 20:
        return _is_table(file, node.id, calls, depth + 1)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in calls
