"""A scenario file to start from: a shipped one with what each key means, and those that it leaves out as comments."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ..base.files import read_text, read_toml, toml_value
from ..base.shipped import find_shipped
from ..systems.registry import system_of

STARTER = "train-llama3-70b-64xh100"
"""What one starts from who names nothing."""


def starter_text(name: str = STARTER) -> str:
    """The text of a scenario file that says what the shipped one of this name says; a UserError if there is none."""
    path = find_shipped(name)
    said = read_toml(path)
    about = [line for line in read_text(path).splitlines() if line.startswith("#")]
    head = [*about, f"# From `runcast init {path.stem}`. Lines that begin with # are keys that it leaves out."]
    return "\n".join([*head, *_keys(system_of(said).schema, said), *_tables(system_of(said).schema, said)]) + "\n"


def _keys(schema: type[BaseModel], said: Mapping[str, Any]) -> Iterator[str]:
    """A line for each key of a table that holds no table of its own."""
    for key, field in _fields(schema, tables=False):
        yield _line(key, said[key], field) if key in said else _left_out(key, field)


def _tables(schema: type[BaseModel], said: Mapping[str, Any]) -> Iterator[str]:
    """The tables that are said, with all their keys; a line for each other one."""
    for key, field in _fields(schema, tables=True):
        inner = _table_of(field)
        if inner is None or key not in said:
            head = f"[[{key}]]" if get_origin(field.annotation) is tuple else f"[{key}]"
            yield f"\n# {head}: {field.description or 'a table'}"
        elif isinstance(said[key], Mapping):
            yield f"\n[{key}]" + (f"  # {field.description}" if field.description else "")
            yield from _inline(inner, said[key])
        else:
            yield from (f"\n[[{key}]]\n" + "\n".join(_line(name, one[name], None) for name in one) for one in said[key])


def _inline(schema: type[BaseModel], said: Mapping[str, Any]) -> Iterator[str]:
    """A line for each key of a table, tables in it among them."""
    for key, field in _fields(schema):
        yield _line(key, said[key], field) if key in said else _left_out(key, field)


def _fields(schema: type[BaseModel], tables: bool | None = None) -> Iterator[tuple[str, FieldInfo]]:
    """The keys of a schema as files spell them; those that hold a table, those that do not, or all."""
    for name, field in schema.model_fields.items():
        if tables is None or tables == (_table_of(field) is not None):
            yield field.alias or name, field


def _table_of(field: FieldInfo) -> type[BaseModel] | None:
    """The schema of the table, or of each in a list of tables, that a key holds; None of tables by name."""
    return None if get_origin(field.annotation) is dict else next(_schemas(field.annotation), None)


def _schemas(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _schemas(inner)


def _line(key: str, value: Any, field: FieldInfo | None) -> str:
    meaning = f"  # {field.description}" if field is not None and field.description else ""
    return f"{key} = {toml_value(value)}{meaning}"


def _left_out(key: str, field: FieldInfo) -> str:
    """A key that is not said, as a comment: with its default, if that is a plain value."""
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined or default in (None, (), {}) or isinstance(default, BaseModel):
        return f"# {key}: {field.description or 'a table'}"
    return f"# {_line(key, default, field)}"
