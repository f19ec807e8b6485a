"""Tables of plain values checked by pydantic: every fault is one line with file, key, value and what is allowed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from .errors import UserError, fault, hint
from .toml import toml_value
from .units import Dimension, parse

_Schema = TypeVar("_Schema", bound=BaseModel)

MOST = 4096
"""The largest count of anything, unless its field says otherwise."""

_RANGE: dict[Dimension, tuple[str, str]] = {
    "bytes": ("1 B", "1000 PB"),
    "bytes_per_s": ("1 kB/s", "1000 PB/s"),
    "flop_per_s": ("1 kFLOP/s", "1e9 PFLOP/s"),
    "watts": ("1 W", "1000 kW"),
}
"""Wide enough for any what-if; beyond them a simulation's times lose their meaning."""


class Section(BaseModel):
    """A table of a data file: no key but those named here; records within it may be plain dataclasses."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def count(least: int, most: int = MOST) -> Any:
    """Metadata of a field that holds a whole number."""
    return Field(strict=True, ge=least, le=most)


def number(least: float, most: float) -> Any:
    """Metadata of a field that holds a number."""
    return Field(strict=True, ge=least, le=most)


def quantity(dimension: Dimension, zero: bool = False) -> BeforeValidator:
    """Metadata of a field that holds a quantity, in SI units once read; zero only where it means absence."""
    low, high = _RANGE[dimension]

    def check(value: Any) -> float:
        try:
            size = parse(value, dimension)
        except OverflowError:
            raise ValueError("is too large") from None
        if not parse(low, dimension) <= size <= parse(high, dimension) and not (zero and size == 0):
            raise ValueError(f"expected {low} to {high}" + ", or 0" * zero)
        return size

    return BeforeValidator(check)


def one_of(allowed: Callable[[], Iterable[Any]]) -> BeforeValidator:
    """Metadata of a field that holds one of some names, which are listed only when a value is checked."""

    def check(value: Any) -> Any:
        if value not in (known := list(allowed())) or isinstance(value, bool):
            raise ValueError(f"expected one of {', '.join(map(str, known))}")
        return value

    return BeforeValidator(check)


def validate(schema: type[_Schema], table: Any, where: str, prefix: str = "") -> _Schema:
    """A table of the file `where` as its schema has it; `prefix` is what messages put before its keys.

    Raises:
        UserError: one line for each unknown key, missing key and value that is not allowed.
    """
    try:
        return schema.model_validate(table)
    except ValidationError as error:
        raise UserError(*(_line(schema, where, prefix, one) for one in error.errors(include_url=False))) from None


def _line(schema: type[BaseModel], where: str, prefix: str, error: Mapping[str, Any]) -> str:
    path = [str(part) for part in error["loc"] if part not in ("str", "dict[str,any]", "[key]")]
    key, value = prefix + ".".join(path), error["input"]
    beside = _keys(_table_of(schema, path))
    field = beside.get(path[-1]) if path else None
    if error["type"] == "missing":
        meaning = getattr(field, "description", None)
        return f"{where}: {key}: is missing" + (f"; expected {meaning}" if meaning else "")
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return fault(where, key, value, f"unknown key; {hint(path[-1], sorted(beside), most=2)}")
    message = _message(error)
    if examples := getattr(field, "examples", None):
        message += f", such as {toml_value(examples[0])}"
    if isinstance(value, Mapping):
        return ": ".join(filter(None, [where, key, message]))
    return fault(where, key, value, message)


def _message(error: Mapping[str, Any]) -> str:
    """Pydantic's words, less those that only a Python programmer knows."""
    if error["type"] in ("tuple_type", "list_type"):
        return "expected a list"
    if error["type"] in ("model_type", "dict_type", "model_attributes_type", "dataclass_type"):
        return "expected a table"
    message: str = error["msg"].removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _table_of(table: Any, path: Iterable[str]) -> Any:
    """The schema of the table in which the last key of the path stands, inside that of the whole file."""
    for part in list(path)[:-1]:
        field = _keys(table).get(part)
        table = next(_tables_in(getattr(field, "annotation", field)), table)
    return table


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
