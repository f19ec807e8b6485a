"""Operations on known values of a Python file: comparisons, arithmetic, and a few of Python's own functions."""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from ...base.errors import shorten
from .arguments import Computed

Value = Any
"""A literal, a list, a table by its keys, or Computed."""
UNKNOWN = object()
"""What `call_builtin` returns for a function that it does not have."""
_FLUENT = ("to_megatron_provider",)
"""Methods that give the object that they belong to, in another form."""
CHANGES: Mapping[str, tuple[Any, Any]] = {
    "append": (list, object),
    "extend": (list, list | tuple),
    "update": (dict, dict),
}
"""Methods that change their owner, with the types of both."""
_COPIES = ("replace", "deepcopy", "copy")
_LONGEST, _LARGEST, _HIGHEST_POWER = 10_000, 2**63, 63
_Operator = ast.cmpop | ast.operator | ast.unaryop
_OPERATIONS: dict[type[_Operator], Callable[..., Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Is: operator.eq, ast.IsNot: operator.ne, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many, ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Div: operator.truediv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.Not: operator.not_, ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
_EQUALITY = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)


def truth(value: Value) -> bool | None:
    """Whether a value counts as true; None where only running the file tells."""
    return None if isinstance(value, Computed) else bool(value)


def apply_operation(node: ast.Compare | ast.BinOp | ast.UnaryOp, *values: Value) -> Value:
    """An operation on values, unless one is not known or the result would be huge. Names are equal by their text."""
    kind = type(node.ops[0] if isinstance(node, ast.Compare) else node.op)
    names = [isinstance(one, Computed) and one.is_name for one in values]
    known = all(not isinstance(one, Computed) for one in values) or (all(names) and kind in _EQUALITY)
    if not known or kind not in _OPERATIONS or _is_huge(values):
        return Computed(short(node))
    if kind in (ast.Pow, ast.Mod) and not _is_power(values):
        return Computed(short(node))
    try:
        found = _OPERATIONS[kind](*values)
    except (TypeError, ValueError, ArithmeticError):
        return Computed(short(node))
    return Computed(short(node)) if isinstance(found, complex) or _is_huge([found]) else found


def _is_huge(values: Sequence[Value]) -> bool:
    """Whether numbers are beyond any size, or a list or a text may become long."""
    numbers = [abs(one) for one in values if isinstance(one, int | float)]
    lengths = [len(one) for one in values if isinstance(one, list | tuple | str)]
    most = _LONGEST if lengths else _LARGEST
    return max([*numbers, *lengths], default=0) > most or (
        lengths[0] * numbers[0] > most if lengths and numbers else False
    )


def _is_power(values: Sequence[Value]) -> bool:
    """Whether these are numbers, and the second one no high exponent."""
    return all(isinstance(one, int | float) for one in values) and abs(values[1]) <= _HIGHEST_POWER


def call_builtin(name: str, given: Sequence[Value], named: Mapping[str, Value]) -> Value:
    """What one of Python's own functions returns, or `dataclasses.replace`; UNKNOWN for others."""
    first = given[0] if given else None
    if name.rpartition(".")[2] in _COPIES and isinstance(first, dict):
        return deepcopy(first) | dict(named)
    if name == "dict" and not given:
        return dict(named)
    if name == "list" and isinstance(first, list | tuple):
        return list(first)
    if name == "isinstance" and len(given) == 2 and isinstance(first, str):
        return str(given[1]) == "str"
    if name == "hasattr" and len(given) == 2 and isinstance(first, dict):
        return given[1] in first
    if name == "getattr" and len(given) == 3 and isinstance(first, dict):
        return first.get(str(given[1]), given[2])
    if name in ("int", "float") and isinstance(first, int | float):
        return int(first) if name == "int" else float(first)
    return UNKNOWN


def call_method(owner: Value, name: str, node: ast.Call, given: Sequence[Value]) -> Value:
    """What a method of a list, a text or a table returns; lists and tables grow."""
    kinds = CHANGES.get(name)
    if kinds and isinstance(owner, kinds[0]) and len(given) == 1 and isinstance(given[0], kinds[1]):
        if len(owner) < _LONGEST:
            getattr(owner, name)(given[0])
        return None
    if isinstance(owner, str) and name in ("lower", "upper"):
        return owner.lower() if name == "lower" else owner.upper()
    return owner if isinstance(owner, dict) and name in _FLUENT else Computed(short(node))


def change_argument(known: Mapping[str, Any], given: Sequence[Value]) -> None:
    """Make the `changes` of a function in its first argument, if the one at `unless_none` is something."""
    place = known.get("unless_none")
    is_on = place is None or (len(given) > place and given[place] is not None)
    if is_on and given and isinstance(given[0], dict):
        merge(given[0], known["changes"])


def merge(table: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Put what changes into a table, and into the tables within it."""
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(table.get(key), dict):
            merge(table[key], value)
        else:
            table[key] = deepcopy(value)


def read_literal(text: str) -> Value:
    """A value of the command line: a literal of Python, or true and false in small letters, or a text."""
    words = {"true": True, "false": False, "none": None, "null": None}
    try:
        return words[text.lower()] if text.lower() in words else ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


def short(node: ast.AST) -> str:
    """The text of a node, on one line and not too long."""
    return shorten(" ".join(ast.unparse(node).split()), 60)
