"""Values of a Python file that is read and not run, and the operators between them."""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

LONGEST = 10_000
"""Items of the longest list or text that an operator or a method makes longer."""
_LARGEST = 2**60


@dataclass
class Call:
    """A call of what the file does not define: its dotted name, its values by position, and by keyword."""

    name: str
    values: tuple[Any, ...] = ()
    keys: dict[str, Any] = field(default_factory=dict)

    @property
    def is_class(self) -> bool:
        """Whether it makes an object of a class, by the capital in its name."""
        return self.name.rpartition(".")[2].lstrip("_")[:1].isupper()

    def table(self) -> dict[str, Any]:
        """Its keys as nested tables; what is not plain stands there as its text in backticks."""
        return {key: plain(value) for key, value in self.keys.items()}


@dataclass(frozen=True)
class Unread:
    """What is not plain, as it is written."""

    text: str


def plain(value: Any) -> Any:
    """A value as literals and tables; what is not plain as its text in backticks."""
    if isinstance(value, Call):
        is_plain = value.keys or (value.is_class and not value.values)
        return value.table() if is_plain else f"`{value.name}(...)`"
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return f"`{value.text}`" if isinstance(value, Unread) else value


def merge(base: Call, changes: Call) -> Call:
    """A call with the keys of both, those of `changes` before those of `base`; sections are merged alike."""
    keys = dict(base.keys)
    for name, value in changes.keys.items():
        section = keys.get(name)
        if isinstance(section, Call) and isinstance(value, Call) and value.name == name:
            value = merge(section, value)
        keys[name] = value
    return Call(base.name, base.values, keys)


def copy_of(value: Any, keys: Mapping[str, Any] | None = None) -> Any:
    """A copy of what a recipe builds, with other keys."""
    if isinstance(value, Call):
        return Call(
            value.name, value.values, {name: copy_of(item) for name, item in value.keys.items()} | dict(keys or {})
        )
    if isinstance(value, dict):
        return {name: copy_of(item) for name, item in value.items()}
    return [copy_of(item) for item in value] if isinstance(value, list) else value


_OPERATIONS: dict[type[Any], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_UNARY: dict[type[Any], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}


def operands(node: ast.expr) -> list[ast.expr]:
    """What an operator stands between; nothing for any other expression."""
    match node:
        case ast.BinOp():
            return [node.left, node.right]
        case ast.Compare() if len(node.ops) == 1:
            return [node.left, node.comparators[0]]
        case ast.UnaryOp():
            return [node.operand]
    return []


def operate(node: ast.expr, values: list[Any]) -> Any:
    """The result of an operator on plain values of a moderate size; `Unread` for any other expression."""
    unread = Unread(ast.unparse(node))
    if not values or any(isinstance(value, Unread | Call) for value in values):
        return unread
    function = _UNARY.get(type(node.op)) if isinstance(node, ast.UnaryOp) else _OPERATIONS.get(_kind(node))
    if function is None or not _is_moderate(_kind(node), values):
        return unread
    try:
        found = function(*values)
    except (TypeError, ValueError, ArithmeticError):
        return unread
    return unread if isinstance(found, complex) or (isinstance(found, int | float) and abs(found) > _LARGEST) else found


def _kind(node: ast.expr) -> type[Any]:
    return type(node.ops[0]) if isinstance(node, ast.Compare) else type(getattr(node, "op", node))


def _is_moderate(kind: type[Any], values: list[Any]) -> bool:
    """Whether an operator makes nothing huge of these values: numbers, or texts and lists that are put together."""
    if all(isinstance(value, int | float) for value in values):
        return kind is not ast.Pow or (abs(values[0]) <= 1e6 and abs(values[1]) <= 64)
    if kind in (ast.Mult, ast.Pow, ast.Mod):
        return False
    return all(not isinstance(value, str | list | tuple) or len(value) < LONGEST for value in values)
