"""Tables of plain values checked by pydantic: every fault is one line with file, key, value and what is allowed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from .errors import UserError, fault, unknown_key
from .files import toml_value
from .units import Dimension, parse

_Schema = TypeVar("_Schema")
_STRICT = ConfigDict(extra="forbid", frozen=True)

MOST = 4096
"""The largest count of anything, unless its field says otherwise."""

HUGE = 1e30
"""More than any number of a file."""

_RANGE: dict[Dimension, tuple[str, str]] = {
    "bytes": ("1 B", "1000 PB"),
    "bytes_per_s": ("1 kB/s", "1000 PB/s"),
    "flop_per_s": ("1 kFLOP/s", "1e9 PFLOP/s"),
    "watts": ("1 W", "1000 kW"),
    "seconds": ("1 ns", "1e9 s"),
}
"""Wide enough for any what-if; beyond them a simulation's times lose their meaning."""


class Section(BaseModel):
    """A table of a data file: no key but those named here; records within it may be plain dataclasses."""

    model_config = _STRICT


def count(least: int, most: int = MOST) -> Any:
    """Metadata of a field that holds a whole number."""
    return Field(strict=True, ge=least, le=most)


def number(least: float, most: float) -> Any:
    """Metadata of a field that holds a number."""
    return Field(strict=True, ge=least, le=most, allow_inf_nan=False)


def quantity(dimension: Dimension, zero: bool = False, least: str = "", example: str = "") -> BeforeValidator:
    """Metadata of a field that holds a quantity, in SI units once read; zero only where it means absence.

    `least` is what it is at least, above all plain numbers that somebody forgot to give a unit, as in the `example`.
    """
    return BeforeValidator(lambda value: read_quantity(value, dimension, zero, least, example))


def read_quantity(value: Any, dimension: Dimension, zero: bool = False, least: str = "", example: str = "") -> float:
    """A quantity in SI units, as `quantity` says.

    Raises:
        ValueError: it is none, or beyond what makes sense; the message says what is allowed.
    """
    low, high = least or _RANGE[dimension][0], _RANGE[dimension][1]
    try:
        size = parse(value, dimension)
    except OverflowError:
        raise ValueError("is too large") from None
    if not parse(low, dimension) <= size <= parse(high, dimension) and not (zero and size == 0):
        raise ValueError(f"expected {low} to {high}" + ", or 0" * zero + (f', such as "{example}"' if example else ""))
    return size


def one_of(allowed: Callable[[], Iterable[Any]]) -> BeforeValidator:
    """Metadata of a field that holds one of some names, which are listed only when a value is checked."""

    def check(value: Any) -> Any:
        if value not in (known := list(allowed())) or isinstance(value, bool):
            raise ValueError(f"expected one of {', '.join(map(str, known))}")
        return value

    return BeforeValidator(check)


def validate(schema: type[_Schema], table: Any, where: str, prefix: str = "") -> _Schema:
    """A table of the file `where` as its schema has it; `prefix` is what messages put before its keys.

    A schema is a model of pydantic, or a dictionary of models or dataclasses.

    Raises:
        UserError: one line for each unknown key, missing key and value that is not allowed.
    """
    adapter: Any = _adapter(schema)  # type: ignore[arg-type]  # types are hashable
    try:
        found: _Schema = adapter.validate_python(table)
    except ValidationError as error:
        raise UserError(*(_line(schema, where, prefix, one) for one in error.errors(include_url=False))) from None
    return found


def wrong_keys(schema: type[BaseModel], table: Any, where: str) -> list[tuple[str, str]]:
    """(key, line) of all that `validate` refuses of what a table says; of a fault between keys, what holds them."""
    try:
        _adapter(schema).validate_python(table)
    except ValidationError as error:
        said = [one for one in error.errors(include_url=False) if one["type"] != "missing"]
        return [(".".join(_path(one)), _line(schema, where, "", one)) for one in said]
    return []


def _path(error: Mapping[str, Any]) -> list[str]:
    """The names of tables and keys that lead to a fault."""
    return [str(part) for part in error["loc"] if part not in ("str", "dict[str,any]", "[key]")]


@cache
def _adapter(schema: Any) -> TypeAdapter[Any]:
    return TypeAdapter(schema, config=None if isinstance(schema, type) and issubclass(schema, BaseModel) else _STRICT)


def _line(schema: Any, where: str, prefix: str, error: Mapping[str, Any]) -> str:
    path = _path(error)
    key, value = prefix + ".".join(path), error["input"]
    beside = _keys(_table_of(schema, path))
    field = beside.get(path[-1], _record_of(schema, path)) if path else None
    if error["type"] == "missing":
        type_ = getattr(field, "annotation", None)
        values = get_args(type_) if get_origin(type_) is Literal else ()
        meaning = f"one of {', '.join(map(str, values))}" if values else getattr(field, "description", None)
        return f"{where}: {key}: is missing" + (f"; expected {meaning}" if meaning else "")
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return unknown_key(where, key, sorted(beside), most=2)
    message = _message(error)
    if message == _TABLE:
        message += _such_keys(field)
    if examples := getattr(field, "examples", None):
        message += f", such as {toml_value(examples[0])}"
    if isinstance(value, Mapping) and (field is None or any(_tables_in(getattr(field, "annotation", field)))):
        return ": ".join(filter(None, [where, key, message]))
    return fault(where, key, value, message)


_TABLE = "expected a table"

_WORDS = {
    "greater_than": "expected more than {gt:g}",
    "greater_than_equal": "expected at least {ge:g}",
    "less_than": "expected less than {lt:g}",
    "less_than_equal": "expected at most {le:g}",
    "literal_error": "expected {expected}",
    "too_short": "expected at least {min_length}",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "multiple_of"), "expected a whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "expected a number"),
    "bool_type": "expected true or false",
    **dict.fromkeys(("string_type", "string_too_short"), "expected text"),
    **dict.fromkeys(("tuple_type", "list_type"), "expected a list"),
    **dict.fromkeys(("model_type", "dict_type", "model_attributes_type", "dataclass_type"), _TABLE),
}
"""What pydantic says, in the words of a file's reader, by type of its error."""


def _message(error: Mapping[str, Any]) -> str:
    if words := _WORDS.get(error["type"]):
        return words.format(**error.get("ctx", {}))
    message: str = error["msg"].removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _table_of(table: Any, path: Iterable[str]) -> Any:
    """The schema of the table in which the last key of the path stands, inside that of the whole file."""
    table = next(_tables_in(table))
    for part in list(path)[:-1]:
        field = _keys(table).get(part)
        table = next(_tables_in(getattr(field, "annotation", field)), table)
    return table


def _record_of(schema: Any, path: list[str]) -> Any:
    """The schema of the records of a dictionary, where the path leads to one of them."""
    return get_args(schema)[-1] if len(path) == 1 and get_origin(schema) is dict else None


def _such_keys(field: Any) -> str:
    """The first keys of the table that a key holds, as examples; nothing where the schema names none."""
    table = next(_tables_in(getattr(field, "annotation", field)), None)
    first = list(_keys(table))[:2] if table is not None else []
    return f" with keys such as {' and '.join(first)}" if first else ""


def _tables_in(annotation: Any) -> Iterator[Any]:
    """The tables that a key may hold: one that may be left out is `Table | None`, some are `list[Table]`."""
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or is_dataclass(annotation)):
        yield annotation
    for inner in get_args(annotation):
        yield from _tables_in(inner)


def _keys(table: Any) -> dict[str, Any]:
    """The keys of a table as files spell them, each with what the schema says of it."""
    if is_dataclass(table):
        return {field.name: field.type for field in fields(table)}
    return {field.alias or name: field for name, field in table.model_fields.items()}
