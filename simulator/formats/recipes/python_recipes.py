"""Recipes that are functions of a Python file, read with `ast`. Nothing is run or imported.

    file = PythonFile(text, "config_registry.py")
    file.recipes                      # ("llama3_8b", "llama3_70b"): functions that need no arguments
    file.choose("llama3_8b")          # the same name, or a UserError with the names; None: the only recipe
    value = file.call("llama3_8b")    # what it returns
    file.lookup("llama3_configs")     # what a name of the file means
    file.unread                       # statements that were left out, as text
    file.imports                      # {"llama3_8b": "torchtitan.models.llama3.config_registry"}: where names are from

Values are literals, lists, tuples and dicts of them; a `Call` of what the file does not define (a class, mostly), with
its keywords and what is assigned to it later as `keys`; and `Unread` for the rest, with its text. Functions of the file
are followed, with what they assign to their arguments. One whose result is not plain stays a `Call`.
"""

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from ...base.errors import UserError, did_you_mean, fault, shorten
from .python_values import LONGEST, Call, Unread, copy_of, operands, operate

__all__ = ["Call", "PythonFile", "Unread"]

_MOST_STEPS = 30_000
_DEEPEST = 40


class PythonFile:
    """A file of recipes; a UserError of one line if it is no Python."""

    def __init__(self, text: str, where: str):
        self.where = where
        self.unread: list[str] = []
        self._steps = self._depth = 0
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise UserError(f"{where}: is not Python: {' '.join(str(error).split())[:100]}") from None
        self._functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
        self.imports = {
            name.asname or name.name: "." * node.level + (node.module or "")
            for node in body
            if isinstance(node, ast.ImportFrom)
            for name in node.names
        }
        self._globals: dict[str, ast.expr] = {}
        for node in body:
            self._globals |= _assignment(node)

    @property
    def recipes(self) -> tuple[str, ...]:
        """Functions that can be called without arguments and return something, but those with a leading underscore."""
        return tuple(name for name, node in self._functions.items() if not name.startswith("_") and _is_recipe(node))

    def choose(self, name: str | None) -> str:
        """The recipe of this name, or the only one; else a UserError with the names."""
        if name in self.recipes:
            return str(name)
        listed = ", ".join(self.recipes)
        if name is not None and listed:
            near = did_you_mean(name, self.recipes) or f"{self.where} has {listed}"
            raise UserError(fault("--recipe", "", name, near))
        if not self.recipes:
            raise UserError(f"{self.where}: holds no recipes: functions without arguments that return something")
        if len(self.recipes) != 1:
            raise UserError(f"{self.where}: give --recipe NAME, one of: {listed}")
        return self.recipes[0]

    def call(self, name: str, *values: Any, **keys: Any) -> Any:
        """What a function of the file returns."""
        return self._follow(self._functions[name], values, keys)

    def lookup(self, name: str) -> Any:
        """What a name at the top of the file means; None if the file assigns it nothing."""
        return self._evaluate(self._globals[name], {}) if name in self._globals else None

    @property
    def names(self) -> tuple[str, ...]:
        """Names that the top of the file assigns."""
        return tuple(self._globals)

    def defines(self, name: str) -> bool:
        """Whether the file has a function of this name."""
        return name in self._functions

    # functions and their statements

    def _follow(self, node: ast.FunctionDef, values: Iterable[Any], keys: Mapping[str, Any]) -> Any:
        if self._depth >= _DEEPEST:
            return Unread(f"{node.name}(...)")
        self._depth += 1
        try:
            scope = self._bind(node, tuple(values), keys)
            returned = self._run(node.body, scope)
        finally:
            self._depth -= 1
        return returned[0] if returned else None

    def _bind(self, node: ast.FunctionDef, values: tuple[Any, ...], keys: Mapping[str, Any]) -> dict[str, Any]:
        names = [argument.arg for argument in node.args.posonlyargs + node.args.args]
        plain = dict(zip(names[len(names) - len(node.args.defaults) :], node.args.defaults, strict=True))
        only = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        plain |= {argument.arg: default for argument, default in only if default is not None}
        defaults = {name: self._evaluate(default, {}) for name, default in plain.items()}
        every = [*names, *(argument.arg for argument in node.args.kwonlyargs)]
        bound = {name: Unread(name) for name in every} | defaults | dict(zip(names, values, strict=False)) | dict(keys)
        if node.args.kwarg:
            bound[node.args.kwarg.arg] = {key: value for key, value in keys.items() if key not in every}
        return bound

    def _run(self, body: Iterable[ast.stmt], scope: dict[str, Any]) -> tuple[Any] | None:
        """Follow statements; what a `return` gives, in a tuple, or None where there is none."""
        for node in body:
            match node:
                case ast.Return():
                    return (self._evaluate(node.value, scope) if node.value else None,)
                case ast.Assign():
                    value = self._evaluate(node.value, scope)
                    for target in node.targets:
                        self._assign(target, value, scope)
                case ast.AnnAssign() if node.value:
                    self._assign(node.target, self._evaluate(node.value, scope), scope)
                case ast.AugAssign():
                    both = ast.BinOp(_as_expression(node.target), node.op, node.value)
                    self._assign(node.target, self._evaluate(ast.fix_missing_locations(both), scope), scope)
                case ast.If():
                    if returned := self._branch(node, scope):
                        return returned
                case ast.Expr(ast.Call() as call):
                    self._perform(call, scope)
                case ast.FunctionDef() | ast.ClassDef():
                    scope[node.name] = Unread(node.name)
                case ast.Expr() | ast.Import() | ast.ImportFrom() | ast.Assert() | ast.Pass() | ast.AnnAssign():
                    pass
                case _:
                    self._leave_out(node, scope)
        return None

    def _branch(self, node: ast.If, scope: dict[str, Any]) -> tuple[Any] | None:
        holds = self._evaluate(node.test, scope)
        if isinstance(holds, Unread | Call):
            self._leave_out(node, scope)
            return None
        return self._run(node.body if holds else node.orelse, scope)

    def _leave_out(self, node: ast.stmt, scope: dict[str, Any]) -> None:
        """Note a statement that is not followed; what it may change is not known any more."""
        self.unread.append(shorten(" ".join(ast.unparse(node).split()), 60))
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                scope[part.id] = Unread(part.id)
            elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.attr in _CHANGES:
                scope[part.value.id] = Unread(part.value.id)

    def _perform(self, node: ast.Call, scope: dict[str, Any]) -> None:
        """A call for its effect: of a function of the file, or of a method that changes a list or dict."""
        if isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
            owner = self._evaluate(node.func.value, scope)
            if isinstance(owner, list | dict) and len(node.args) == 1 and len(owner) < LONGEST:
                value = self._evaluate(node.args[0], scope)
                if isinstance(owner, list) == (node.func.attr != "update") and _fits(node.func.attr, value):
                    getattr(owner, node.func.attr)(value)
                    return
        if isinstance(node.func, ast.Name) and node.func.id in self._functions:
            self._evaluate(node, scope)
        elif isinstance(node.func, ast.Attribute) or any(isinstance(part, ast.Name) for part in node.args):
            self._leave_out(ast.Expr(node), scope)

    def _assign(self, target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
        match target:
            case ast.Name():
                scope[target.id] = value
            case ast.Attribute(owner, name):
                holder = self._holder(owner, scope)
                if isinstance(holder, Call):
                    holder.keys[name] = value
                else:
                    self.unread.append(shorten(ast.unparse(target), 60))
            case ast.Subscript(owner, index):
                holder, key = self._evaluate(owner, scope), self._evaluate(index, scope)
                if isinstance(holder, dict) and isinstance(key, str | int):
                    holder[key] = value
                else:
                    self.unread.append(shorten(ast.unparse(target), 60))
            case ast.Tuple(targets) | ast.List(targets):
                fits = isinstance(value, list | tuple) and len(value) == len(targets)
                for place, part in enumerate(targets):
                    self._assign(part, value[place] if fits else Unread(ast.unparse(part)), scope)

    def _holder(self, node: ast.expr, scope: dict[str, Any]) -> Any:
        """What an attribute is assigned to; a section of a configuration that nobody has named yet is made."""
        if isinstance(node, ast.Attribute):
            owner = self._holder(node.value, scope)
            if isinstance(owner, Call):
                if not isinstance(owner.keys.get(node.attr), Call | dict):
                    owner.keys[node.attr] = Call(node.attr)
                return owner.keys[node.attr]
            return None
        return self._evaluate(node, scope)

    # expressions

    def _evaluate(self, node: ast.expr, scope: Mapping[str, Any]) -> Any:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise UserError(f"{self.where}: its recipes take more than {_MOST_STEPS:,} steps to read")
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._name(node.id, scope)
            case ast.List() | ast.Tuple() | ast.Set():
                items = self._items(node.elts, scope)
                return tuple(items) if isinstance(node, ast.Tuple) else items
            case ast.Dict():
                return self._dict(node, scope)
            case ast.Attribute():
                owner = self._evaluate(node.value, scope)
                found = owner.keys.get(node.attr, _NOTHING) if isinstance(owner, Call) else _NOTHING
                return Unread(ast.unparse(node)) if found is _NOTHING else found
            case ast.Subscript():
                return self._item(node, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.IfExp():
                test = self._evaluate(node.test, scope)
                unsure = isinstance(test, Unread | Call)
                return (
                    Unread(ast.unparse(node)) if unsure else self._evaluate(node.body if test else node.orelse, scope)
                )
            case ast.BoolOp():
                return self._combine(node, scope)
        return operate(node, [self._evaluate(part, scope) for part in operands(node)])

    def _name(self, name: str, scope: Mapping[str, Any]) -> Any:
        if name in scope:
            return scope[name]
        found = self.lookup(name) if self._depth < _DEEPEST else None
        return Unread(name) if found is None else found

    def _items(self, nodes: Iterable[ast.expr], scope: Mapping[str, Any]) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            value = self._evaluate(node.value if isinstance(node, ast.Starred) else node, scope)
            found += value if isinstance(node, ast.Starred) and isinstance(value, list | tuple) else [value]
        return found

    def _dict(self, node: ast.Dict, scope: Mapping[str, Any]) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            held = self._evaluate(value, scope)
            name = self._evaluate(key, scope) if key else None
            if key is None and isinstance(held, dict):
                found |= held
            elif isinstance(name, str | int | float):
                found[name] = held
        return found

    def _item(self, node: ast.Subscript, scope: Mapping[str, Any]) -> Any:
        owner, key = self._evaluate(node.value, scope), self._evaluate(node.slice, scope)
        try:
            return owner[key] if isinstance(owner, dict | list | tuple) else Unread(ast.unparse(node))
        except (KeyError, IndexError, TypeError):
            return Unread(ast.unparse(node))

    def _combine(self, node: ast.BoolOp, scope: Mapping[str, Any]) -> Any:
        """`and` and `or`, which end at the first value that decides."""
        value: Any = None
        for part in node.values:
            value = self._evaluate(part, scope)
            if isinstance(value, Unread | Call):
                return Unread(ast.unparse(node))
            if bool(value) == isinstance(node.op, ast.Or):
                break
        return value

    def _call(self, node: ast.Call, scope: Mapping[str, Any]) -> Any:
        name = ast.unparse(node.func)
        values = tuple(self._items(node.args, scope))
        keys: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self._evaluate(keyword.value, scope)
            keys |= {keyword.arg: value} if keyword.arg else value if isinstance(value, dict) else {}
        if name in self._functions and name not in scope:
            return self._own(name, values, keys)
        if name.rpartition(".")[2] in ("replace", "deepcopy", "copy") and values and isinstance(values[0], Call):
            return copy_of(values[0], keys)
        return dict(keys) if name == "dict" and not values else Call(name, values, keys)

    def _own(self, name: str, values: tuple[Any, ...], keys: dict[str, Any]) -> Any:
        """What a function of the file gives; as a call where that is not plain."""
        noted = len(self.unread)
        found = self._follow(self._functions[name], values, keys)
        if isinstance(found, Unread):
            del self.unread[noted:]
            return Call(name, values, keys)
        return found


_NOTHING = object()
_CHANGES = ("append", "extend", "update")


def _fits(method: str, value: Any) -> bool:
    return method == "append" or isinstance(value, list | tuple if method == "extend" else dict)


def _assignment(node: ast.stmt) -> dict[str, ast.expr]:
    """The name that a statement at the top of a file assigns, with its expression."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    value = getattr(node, "value", None)
    return {target.id: value} if isinstance(target, ast.Name) and isinstance(value, ast.expr) else {}


def _is_recipe(node: ast.FunctionDef) -> bool:
    arguments = node.args
    needed = len(arguments.posonlyargs + arguments.args) - len(arguments.defaults) + arguments.kw_defaults.count(None)
    returns = any(isinstance(part, ast.Return) and part.value is not None for part in ast.walk(node))
    return needed == 0 and returns


def _as_expression(target: ast.expr) -> ast.expr:
    """A target of an assignment as an expression."""
    return ast.parse(ast.unparse(target), mode="eval").body
