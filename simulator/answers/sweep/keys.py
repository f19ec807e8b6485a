"""Keys of scenarios: whether a kind of scenario has one, and what a checked scenario says for it."""

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ...base.errors import unknown
from ...scenario import SYSTEMS
from .ranges import si_value


def is_key(kind: str, key: str) -> bool:
    """Whether scenarios of the kind have a key, or may have one: what is below `cluster` is free."""
    return _unknown_part(kind, key) is None


def check_key(kind: str, key: str, where: str, place: str) -> None:
    """Raises a UserError with the nearest names where scenarios of the kind have no such key."""
    found = _unknown_part(kind, key)
    if found is not None:
        table, prefix = found
        raise unknown(where, place, key, [f"{prefix}{name}" for name in table])


def field_of(kind: str, key: str) -> FieldInfo | None:
    """What the schema says of a key that there is; None of one below a table that is free."""
    table: type[BaseModel] | None = SYSTEMS[kind].schema
    field = None
    for part in key.split("."):
        if table is None:
            return None
        field = _fields(table)[part]
        table = _table(field.annotation)
    return field


def value_of(scenario: BaseModel, key: str) -> float | None:
    """The number that a checked scenario says for a key, in SI units; None where it says none."""
    value: Any = scenario
    for part in key.split("."):
        value = _inside(value, part)
    try:
        return si_value(value)
    except ValueError:
        return None


def _unknown_part(kind: str, key: str) -> tuple[list[str], str] | None:
    """The names beside the first part that is unknown, and what stands before it."""
    table: type[BaseModel] | None = SYSTEMS[kind].schema
    prefix = ""
    for part in key.split("."):
        if table is None:
            return None
        fields = _fields(table)
        if part not in fields:
            return list(fields), prefix
        table, prefix = _table(fields[part].annotation), f"{prefix}{part}."
    return None


def _fields(table: type[BaseModel]) -> dict[str, FieldInfo]:
    """What a table may hold, as files spell it."""
    return {field.alias or name: field for name, field in table.model_fields.items()}


def _table(annotation: Any) -> type[BaseModel] | None:
    """The schema of a key that is a table, or may be one."""
    kinds = (annotation, *get_args(annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _inside(value: Any, part: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(part)
    if not isinstance(value, BaseModel):
        return None
    names = {field.alias or name: name for name, field in type(value).model_fields.items()}
    return getattr(value, names[part]) if part in names else None
