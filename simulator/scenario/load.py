"""From a TOML file and `--set` changes to a checked Scenario; every fault is one line with file, key and value."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from ..errors import UserError, fault, hint
from ..files import read_toml
from .cycle import CycleScenario
from .defaults import with_defaults
from .schema import Scenario
from .training import TrainScenario

_Asked = TypeVar("_Asked", bound=BaseModel)


def load_question(path: str | Path, changes: Sequence[str] = ()) -> Scenario | CycleScenario | TrainScenario:
    """Read a scenario file of any kind, like `load_scenario`.

    Raises:
        UserError: the file cannot be read, is not TOML, or says something that is not allowed.
    """
    table = _read(path, changes)
    if table.get("kind") == "rl_cycle":
        return check_cycle(table, str(path))
    if table.get("kind") == "train_step":
        return check_train(table, str(path))
    if table.get("kind", "weight_update") != "weight_update":
        allowed = "input should be 'weight_update', 'train_step' or 'rl_cycle'"
        raise UserError(fault(str(path), "kind", table["kind"], allowed))
    return check_scenario(table, str(path))


def load_scenario(path: str | Path, changes: Sequence[str] = ()) -> Scenario:
    """Read a scenario file and apply `key=value` changes such as `update.bucket=2 GiB`.

    Raises:
        UserError: the file cannot be read, is not TOML, or says something that is not allowed.
    """
    return check_scenario(_read(path, changes), str(path))


def check_scenario(table: Mapping[str, Any], where: str = "scenario") -> Scenario:
    """The Scenario that a table of plain values says, or a UserError with a line per fault."""
    return _checked(Scenario, table, where)


def check_cycle(table: Mapping[str, Any], where: str = "scenario") -> CycleScenario:
    """The same for a scenario of kind rl_cycle."""
    return _checked(CycleScenario, table, where)


def check_train(table: Mapping[str, Any], where: str = "scenario") -> TrainScenario:
    """The same for a scenario of kind train_step; where it is silent, its stack speaks."""
    return _checked(TrainScenario, with_defaults(table, where), where)


def _read(path: str | Path, changes: Sequence[str]) -> dict[str, Any]:
    table = read_toml(Path(path))
    for change in changes:
        _apply(table, change)
    return table


def _checked(schema: type[_Asked], table: Mapping[str, Any], where: str) -> _Asked:
    try:
        return schema.model_validate(_tuples(table))
    except ValidationError as error:
        raise UserError(*(_line(schema, where, one) for one in error.errors(include_url=False))) from error


def _apply(table: dict[str, Any], change: str) -> None:
    key, equals, text = change.partition("=")
    if not equals or not key.strip():
        raise UserError(f"--set {change}: expected key=value, such as update.bucket='2 GiB'")
    *path, last = key.strip().split(".")
    for part in path:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise UserError(f"--set {change}: {part} is a value, not a table")
    table[last] = _toml_value(text.strip())


def _toml_value(text: str) -> Any:
    """The TOML value that the text writes, or the text itself where it writes none (`5.89 GiB`)."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _tuples(value: Any) -> Any:
    """Lists as tuples, which is what a frozen schema holds; what is free, overrides and changes to a cluster, stays."""
    if isinstance(value, Mapping):
        return {key: item if key in ("overrides", "cluster") else _tuples(item) for key, item in value.items()}
    return tuple(value) if isinstance(value, list) else value


def _line(schema: type[BaseModel], where: str, error: Mapping[str, Any]) -> str:
    path = [str(part) for part in error["loc"] if part not in ("str", "dict[str,any]")]
    key = ".".join(path)
    if error["type"] == "missing":
        return f"{where}: {key}: is missing; {_meaning(schema, path)}"
    if error["type"] == "extra_forbidden":
        return fault(where, key, error["input"], f"unknown key; {_known(schema, path)}")
    message, value = _message(error), error["input"]
    if error["type"] == "tuple_type" and path == ["slow"]:
        message += " of tables, such as [{node = 0, factor = 1.5}]"
    if isinstance(value, Mapping):
        return ": ".join(filter(None, [where, key, message]))
    return fault(where, key, value, message)


def _message(error: Mapping[str, Any]) -> str:
    """Pydantic's words, less those that only a Python programmer knows."""
    if error["type"] == "tuple_type":
        return "expected a list"
    if error["type"] in ("model_type", "dict_type", "model_attributes_type"):
        return "expected a table"
    message: str = error["msg"].removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _table_of(table: type[BaseModel], path: Iterable[str]) -> type[BaseModel]:
    """The schema of the table in which the last key of the path stands, inside that of the whole file."""
    for part in list(path)[:-1]:
        field = table.model_fields.get(part)
        annotation = field.annotation if field else None
        for kind in (annotation, *get_args(annotation)):  # a table that may be left out is `Table | None`
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                table = kind
    return table


def _fields(schema: type[BaseModel], path: list[str]) -> dict[str, FieldInfo]:
    """The keys beside the last one of the path, as files spell them."""
    return {field.alias or name: field for name, field in _table_of(schema, path).model_fields.items()}


def _known(schema: type[BaseModel], path: list[str]) -> str:
    return hint(path[-1], sorted(_fields(schema, path)), most=2)


def _meaning(schema: type[BaseModel], path: list[str]) -> str:
    field = _fields(schema, path).get(path[-1])
    return f"expected {field.description}" if field else "expected a value"
