"""A scenario file to start from: a shipped one, its comments, what each key means, and the keys that it leaves out."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

import tomlkit
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from tomlkit.container import Container
from tomlkit.items import AoT, Comment, Item, Table

from ..base.files import read_text, toml_value
from ..base.shipped import find_shipped
from ..systems.registry import system_of

STARTER = "train-llama3-70b-64xh100"
"""What one starts from who names nothing."""

_Fields = Mapping[str, FieldInfo | None]
"""What is known of keys; None where they are not ours, such as those of Hugging Face."""


def starter_text(name: str = STARTER) -> str:
    """The text of the shipped scenario of this name, with what its keys mean; a UserError if there is none."""
    path = find_shipped(name)
    said = tomlkit.parse(read_text(path))
    head = f"# From `runcast init {path.stem}`. A key or table behind a # is one that it leaves out."
    return "\n".join([head, *_table("", _fields(system_of(said).schema), said)]) + "\n"


def _table(prefix: str, fields: _Fields, said: Container) -> Iterator[str]:
    """The lines of a table: its keys, said or left out, then the tables in it; with the comments of the file."""
    items, comments = {key.key: item for key, item in said.body if key is not None}, _comments(said)
    tables = [key for key, field in fields.items() if _is_table(items.get(key), field)]
    for key, field in fields.items():
        yield from comments.get(key, ())
        if key not in tables:
            yield _line(key, items[key], field) if key in items else _left_out(key, field)
    yield from comments[""]
    for key in tables:
        yield from _section(f"{prefix}{key}", fields[key], items.get(key))


def _comments(said: Container) -> dict[str, list[str]]:
    """The lines of comments above each key; those below the last one are of the key ''."""
    found, above = dict[str, list[str]](), list[str]()
    for key, item in said.body:
        if isinstance(item, Comment):
            above.append(item.as_string().strip())
        elif key is not None:
            found[key.key], above = above, []
    return found | {"": above}


def _is_table(said: Item | None, field: FieldInfo | None) -> bool:
    """Whether a key has lines of its own below a head, or may have where it is left out."""
    return _table_of(field) is not None if said is None else isinstance(said, Table | AoT)


def _section(name: str, field: FieldInfo | None, said: Item | None) -> Iterator[str]:
    """A table with its head, each of a list of tables, or a line where it is left out."""
    meaning = field.description if field is not None else None
    if isinstance(said, AoT):
        for one in said:
            yield f"\n[[{name}]]{_comment(None, one)}"
            yield from _table(f"{name}.", dict.fromkeys(one), one.value)
    elif isinstance(said, Table):
        schema = _table_of(field)
        yield f"\n[{name}]{_comment(meaning, said)}"
        yield from _table(f"{name}.", dict.fromkeys(said) if schema is None else _fields(schema), said.value)
    else:
        head = f"[[{name}]]" if field is not None and get_origin(field.annotation) is tuple else f"[{name}]"
        yield f"\n# {head}: {meaning or 'a table'}"


def _fields(schema: type[BaseModel]) -> _Fields:
    """The keys of a schema as files spell them."""
    return {field.alias or name: field for name, field in schema.model_fields.items()}


def _table_of(field: FieldInfo | None) -> type[BaseModel] | None:
    """The schema of the table, or of each in a list of tables, that a key holds; None of tables by name."""
    annotation = dict if field is None else field.annotation
    return None if get_origin(annotation) is dict else next(_schemas(annotation), None)


def _schemas(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _schemas(inner)


def _line(key: str, said: Item, field: FieldInfo | None) -> str:
    return f"{key} = {said.as_string()}{_comment(field and field.description, said)}"


def _comment(meaning: str | None, said: Item | None = None) -> str:
    """What a key means, and what the file says of its value."""
    own = said.trivia.comment.removeprefix("#").strip() if said is not None else ""
    text = "; ".join(filter(None, (meaning, own)))
    return f"  # {text}" if text else ""


def _left_out(key: str, field: FieldInfo | None) -> str:
    """A key that is not said, as a comment: with its default, if that is a plain value."""
    assert field is not None
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined or default in (None, (), {}) or isinstance(default, BaseModel):
        return f"# {key}: {field.description or 'a table'}"
    return f"# {key} = {toml_value(default)}{_comment(field.description)}"
