"""What a function of a Python file returns, as nested tables: literals, keyword arguments and assignments are followed.

A call of something whose text is not at hand is a table: its name under `_target_`, beside its keyword arguments. What
only running the file would tell is `Computed`. Python itself evaluates nothing of the file.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...base.errors import shorten
from .arguments import Computed
from .python_files import Import, Modules, PythonFile, imports_of
from .python_operations import (
    CHANGES,
    UNKNOWN,
    Value,
    apply_operation,
    call_builtin,
    call_method,
    change_argument,
    short,
    truth,
)

TARGET, POSITIONAL = "_target_", "_args_"
Answer = Callable[[PythonFile, Sequence[Value], Mapping[str, Value]], Value]
"""What the reader of a tool answers itself: a call in a file, with its values by position and by name."""
_BUILDERS = ("Config", "Partial", "partial", "nemo_run.Config", "nemo_run.Partial", "functools.partial")
"""Calls whose first argument is what is called."""
_MOST_CALLS, _DEEPEST, _MOST_NOTES = 20_000, 40, 5
_SILENT = ("print",)


@dataclass
class Frame:
    """Where names are looked up: those of a function's call, then those of its file."""

    file: PythonFile
    names: dict[str, Value] = field(default_factory=dict)


class Incomplete(dict[Value, Value]):
    """A table to which a star adds what only running the file would tell."""


class _Return(Exception):  # noqa: N818 - it is no error
    """Ends the statements of a function, with its value."""

    def __init__(self, value: Value):
        self.value = value


class Reader:
    """What functions and constants of Python files are, without running them.

    `library` has what functions of the tool return whose files are not at hand, and `answers` functions that are asked
    in place of those of the files. `notes` are lines on what was not followed in the folder `noted`.
    """

    def __init__(self, modules: Modules, noted: Path, library: Mapping[str, Any], answers: Mapping[str, Answer]):
        self.library, self.answers = library, answers
        self.notes: list[str] = []
        self._modules, self._noted = modules, noted
        self._calls = self._depth = 0

    def constant(self, name: str, file: PythonFile) -> Value:
        """What a file assigns to a name."""
        if name not in file.values:
            file.values[name] = Computed(name)  # what refers to itself
            file.values[name] = self._value(file.constants[name], Frame(file))
        return file.values[name]

    def call(self, name: str, file: PythonFile, given: Sequence[Value], named: Mapping[str, Value]) -> Value:
        """What a function of a file returns; what is called where only running it tells."""
        before = len(self.notes)
        found = self._run(file.functions[name], file, given, named)
        if isinstance(found, Computed) and not found.is_name:
            del self.notes[before:]
            return _computed_call(name, given, named)
        return found

    def _run(
        self, node: ast.FunctionDef, file: PythonFile, given: Sequence[Value], named: Mapping[str, Value]
    ) -> Value:
        """What a function returns for these arguments; None where it returns nothing."""
        self._calls, self._depth = self._calls + 1, self._depth + 1
        try:
            if self._calls > _MOST_CALLS or self._depth > _DEEPEST:
                return Computed(f"{node.name}(...)")
            self._statements(node.body, self._bind(node.args, file, given, named))
        except _Return as end:
            return end.value
        finally:
            self._depth -= 1
        return None

    def _bind(self, args: ast.arguments, file: PythonFile, given: Sequence[Value], named: Mapping[str, Value]) -> Frame:
        """Parameters with their values: given ones, else defaults."""
        names = [one.arg for one in (*args.posonlyargs, *args.args)]
        every = [*names, *(one.arg for one in args.kwonlyargs)]
        defaults = dict(zip(reversed(names), reversed(args.defaults), strict=False))
        defaults |= {one.arg: node for one, node in zip(args.kwonlyargs, args.kw_defaults, strict=True) if node}
        found: dict[str, Value] = {name: Computed(name) for name in every}
        found |= {name: self._value(node, Frame(file)) for name, node in defaults.items()}
        found |= dict(zip(names, given, strict=False)) | {name: named[name] for name in every if name in named}
        if args.kwarg:
            rest = {name: value for name, value in named.items() if name not in every}
            found[args.kwarg.arg] = Incomplete(rest) if isinstance(named, Incomplete) else rest
        return Frame(file, found)

    def _statements(self, body: Sequence[ast.stmt], frame: Frame) -> None:
        for node in body:
            self._statement(node, frame)

    def _statement(self, node: ast.stmt, frame: Frame) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                found = self._value(value, frame)
                for target in targets:
                    self._assign(target, found, frame)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self._value(value, frame), frame)
            case ast.AugAssign(target=target, op=op, value=value):
                self._assign(target, self._value(ast.BinOp(target, op, value), frame), frame)
            case ast.Return(value=value):
                raise _Return(None if value is None else self._value(value, frame))
            case ast.Expr(value=value):
                self._perform(value, frame)
            case ast.If(test=test):
                self._branch(node, truth(self._value(test, frame)), frame)
            case ast.Try(body=body) | ast.With(body=body):
                self._statements(body, frame)
            case ast.Import() | ast.ImportFrom():
                frame.names |= imports_of([node])
            case ast.Raise():
                raise _Return(Computed(short(node)))
            case ast.For() | ast.While():
                self._note(node, node.body, frame)
                _forget(node, frame)

    def _branch(self, node: ast.If, holds: bool | None, frame: Frame) -> None:
        """Follow the branch that is taken; neither where only running the file tells."""
        if holds is None:
            self._note(node, [*node.body, *node.orelse], frame)
        else:
            self._statements(node.body if holds else node.orelse, frame)

    def _note(self, node: ast.If | ast.For | ast.While, body: Sequence[ast.stmt], frame: Frame) -> None:
        """Note a branch or a loop that is not followed, if it does anything."""
        does = any(isinstance(part, ast.Assign | ast.Return) for one in body for part in ast.walk(one))
        if does:
            self._add_note(node, frame)

    def _add_note(self, node: ast.stmt | ast.expr, frame: Frame) -> None:
        """Note what is not followed, in files of the recipe's own folder."""
        if frame.file.path.parent == self._noted and len(self.notes) < _MOST_NOTES:
            head = ast.unparse(node).partition("\n")[0].rstrip(":")
            self.notes.append(f"line {node.lineno}, {shorten(head, 60)}: not followed, as only running the file tells")

    def _perform(self, node: ast.expr, frame: Frame) -> None:
        """A call for what it changes; a note where it is not followed."""
        found = self._value(node, frame)
        if isinstance(found, Computed) and isinstance(node, ast.Call) and ast.unparse(node.func) not in _SILENT:
            self._add_note(node, frame)

    def _assign(self, target: ast.expr, value: Value, frame: Frame) -> None:
        match target:
            case ast.Name(id=name):
                frame.names[name] = value
            case (
                ast.Attribute(value=owner, attr=key)
                | ast.Subscript(value=owner, slice=ast.Constant(value=str() as key))
            ):
                self._table(owner, frame)[key] = value
            case ast.Tuple(elts=parts):
                fits = isinstance(value, list | tuple) and len(value) == len(parts)
                for part, one in zip(parts, value if fits else [Computed(short(target))] * len(parts), strict=True):
                    self._assign(part, one, frame)

    def _table(self, node: ast.expr, frame: Frame) -> dict[str, Value]:
        """The table that an assignment changes; one that its owner does not have yet is made."""
        found = self._value(node, frame)
        if isinstance(found, dict):
            return found
        made: dict[str, Value] = {}
        if isinstance(node, ast.Attribute) and (isinstance(found, Computed) or found is None):
            self._table(node.value, frame)[node.attr] = made
        return made

    def _value(self, node: ast.expr, frame: Frame) -> Value:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return value
            case ast.Name(id=name):
                return self._name(name, frame)
            case ast.Attribute(value=owner, attr=key):
                return self._attribute(self._value(owner, frame), key, node)
            case ast.Call():
                return self._call(node, frame)
            case ast.List(elts=parts) | ast.Set(elts=parts):
                return self._items(parts, frame)
            case ast.Tuple(elts=parts):
                return tuple(self._items(parts, frame))
            case ast.Dict(keys=keys, values=values):
                return self._dictionary(keys, values, frame)
            case ast.ListComp(elt=part, generators=[ast.comprehension(target=target, iter=many, ifs=[])]):
                return self._each(part, target, self._value(many, frame), node, frame)
            case ast.Subscript(value=owner, slice=key):
                return _item(self._value(owner, frame), self._value(key, frame), node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                holds = truth(self._value(test, frame))
                return Computed(short(node)) if holds is None else self._value(body if holds else orelse, frame)
            case ast.BoolOp(op=op, values=parts):
                return self._any_or_all(isinstance(op, ast.Or), parts, frame)
            case ast.UnaryOp(operand=part):
                return apply_operation(node, self._value(part, frame))
            case ast.Compare(left=left, comparators=[right]) | ast.BinOp(left=left, right=right):
                return apply_operation(node, self._value(left, frame), self._value(right, frame))
        return Computed(short(node))

    def _items(self, nodes: Sequence[ast.expr], frame: Frame) -> list[Value]:
        """Values in a row; those of a list with a star are put in."""
        found: list[Value] = []
        for node in nodes:
            value = self._value(node.value if isinstance(node, ast.Starred) else node, frame)
            found += value if isinstance(node, ast.Starred) and isinstance(value, list | tuple) else [value]
        return found

    def _name(self, name: str, frame: Frame) -> Value:
        file = frame.file
        if name in frame.names:
            found = frame.names[name]
            return self._imported(found, file) if isinstance(found, Import) else found
        if name in file.constants:
            return self.constant(name, file)
        return self._imported(file.imports[name], file) if name in file.imports else Computed(name, is_name=True)

    def _imported(self, found: Import, file: PythonFile) -> Value:
        """A module or a constant of one, if its file is at hand; else its name."""
        whole = f"{found.module}.{found.name}" if found.name else found.module
        if (module := self._modules.find(whole, file)) is not None:
            return module
        other = self._modules.find(found.module, file) if found.name else None
        if other is not None and found.name in other.constants:
            return self.constant(found.name, other)
        return Computed(found.text, is_name=True)

    def _attribute(self, owner: Value, key: str, node: ast.expr) -> Value:
        if isinstance(owner, PythonFile):
            return self._name(key, Frame(owner))
        if isinstance(owner, dict) and key == "__fn_or_cls__":
            return Computed(str(owner.get(TARGET)), is_name=True)
        if isinstance(owner, dict) and key in owner:
            return owner[key]
        named = isinstance(owner, Computed) and owner.is_name
        return Computed(f"{owner}.{key}" if named else short(node), is_name=named)

    def _dictionary(self, keys: Sequence[ast.expr | None], values: Sequence[ast.expr], frame: Frame) -> Value:
        found: dict[Value, Value] = {}
        whole = True
        for key, node in zip(keys, values, strict=True):
            value, name = self._value(node, frame), self._value(key, frame) if key else None
            if key is None:
                found |= value if isinstance(value, dict) else {}
                whole = whole and isinstance(value, dict) and not isinstance(value, Incomplete)
            elif isinstance(name, str | int | tuple):
                found[str(name) if _holds_objects(name) else name] = value
        return found if whole else Incomplete(found)

    def _each(self, part: ast.expr, target: ast.expr, many: Value, node: ast.expr, frame: Frame) -> Value:
        """The values of a comprehension, for each of a known list."""
        if not isinstance(many, list | tuple) or self._calls + len(many) > _MOST_CALLS:
            return Computed(short(node))
        self._calls += len(many)
        inner, found = Frame(frame.file, dict(frame.names)), []
        for one in many:
            self._assign(target, one, inner)
            found.append(self._value(part, inner))
        return found

    def _any_or_all(self, stops_at: bool, parts: Sequence[ast.expr], frame: Frame) -> Value:
        """`or` (stops at what is true) and `and`: the value at which it ends."""
        found: Value = None
        for part in parts:
            found = self._value(part, frame)
            if (holds := truth(found)) is None or holds == stops_at:
                break
        return found

    def _call(self, node: ast.Call, frame: Frame) -> Value:
        given = self._items(node.args, frame)
        named = self._dictionary([ast.Constant(k.arg) if k.arg else None for k in node.keywords],
                                 [k.value for k in node.keywords], frame)  # fmt: skip
        if isinstance(node.func, ast.Name):
            return self._by_name(node.func.id, frame, given, named)
        if not isinstance(node.func, ast.Attribute):
            return Computed(short(node))
        owner = self._value(node.func.value, frame)
        if node.func.attr == "append" and isinstance(node.func.value, ast.Attribute) and isinstance(owner, Computed):
            owner = self._table(node.func.value.value, frame).setdefault(node.func.value.attr, [])
        if isinstance(owner, PythonFile):
            return self._by_name(node.func.attr, Frame(owner), given, named)
        if isinstance(owner, Computed) and owner.is_name:
            name = f"{owner}.{node.func.attr}"
            found = call_builtin(name, given, named)
            return self._unseen(name, given, named) if found is UNKNOWN else found
        if node.func.attr == "get" and isinstance(owner, dict) and given and isinstance(given[0], str):
            return _look_up(owner, given, node)
        return call_method(owner, node.func.attr, node, given)

    def _by_name(self, name: str, frame: Frame, given: Sequence[Value], named: Mapping[str, Value]) -> Value:
        """A call of a function of a file, or of one that the file imports."""
        file = frame.file
        if name in self.answers:
            return self.answers[name](file, given, named)
        if name in file.functions:
            return self.call(name, file, given, named)
        imported = frame.names.get(name) or file.imports.get(name)
        if isinstance(imported, Import) and imported.name:
            other = self._modules.find(imported.module, file)
            if other is not None and imported.name in other.functions and not self._over_file(imported.name):
                return self.call(imported.name, other, given, named)
            name = imported.name
        if (found := call_builtin(name, given, named)) is not UNKNOWN:
            return found
        is_object = imported is not None or name in file.classes or name in self.library or is_class(name)
        return self._unseen(name, given, named) if is_object else _computed_call(name, given, named)

    def _over_file(self, name: str) -> bool:
        """Whether the library knows a function better than reading its file does."""
        known = self.library.get(name)
        return isinstance(known, Mapping) and bool(known.get("over_file"))

    def _unseen(self, name: str, given: Sequence[Value], named: Mapping[str, Value]) -> Value:
        """A call of what is not at hand: a table, with what the library says of it."""
        if name in _BUILDERS and given:
            name, given = str(given[0]), given[1:]
        known = deepcopy(self.library.get(_last(name), {}))
        if isinstance(known, list):
            return known
        known.pop("over_file", None)
        if "changes" in known:
            return change_argument(known, given)
        if (note := known.pop("note", None)) and note not in self.notes:
            self.notes.append(note)
        takes = {key: given[place] for key, place in known.pop("takes", {}).items() if place < len(given)}
        rest = {POSITIONAL: list(given)} if given and not takes else {}
        return {TARGET: name} | rest | known | takes | dict(named)


def _look_up(table: Mapping[Value, Value], given: Sequence[Value], node: ast.Call) -> Value:
    """What `get` returns: what a table has of a name, else what is given for it, where all of the table is known."""
    unknown = isinstance(table, Incomplete) or TARGET in table
    return Computed(short(node)) if unknown and given[0] not in table else table.get(*given[:2])


def is_class(name: str) -> bool:
    """Whether a name with dots is a class, by its capital."""
    return _last(name).lstrip("_")[:1].isupper()


def _computed_call(name: str, given: Sequence[Value], named: Mapping[str, Value]) -> Computed:
    """The result of a function that only running the file would tell."""
    return Computed(f"{name}(...)", call={TARGET: name, POSITIONAL: list(given), **named})


def _forget(node: ast.stmt, frame: Frame) -> None:
    """Take what a loop changes as unknown: names that it assigns, and lists and tables that it fills."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            frame.names[part.id] = Computed(part.id)
        elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.attr in CHANGES:
            frame.names[part.value.id] = Computed(part.value.id)


def _holds_objects(key: Value) -> bool:
    """Whether a tuple cannot be a key, as it holds lists or tables."""
    return isinstance(key, tuple) and any(isinstance(one, list | dict | tuple) for one in key)


def _item(owner: Value, key: Value, node: ast.expr) -> Value:
    """A value by its key, or by its place in a list."""
    if isinstance(owner, Computed) and owner.is_name:
        return Computed(f"{owner}[{key!r}]", is_name=True)
    try:
        return owner[key] if isinstance(owner, dict | list | tuple) else Computed(short(node))
    except (LookupError, TypeError):
        return Computed(short(node))


def _last(name: str) -> str:
    return name.rpartition(".")[2]
