"""From a table of plain values to a checked Scenario; every fault is one line with file, key and value."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from ..base.errors import UserError, fault, hint
from ..systems.keys import Values, faults
from ..systems.registry import SYSTEMS, AnyScenario
from ..systems.rl_cycle.scenario import CycleScenario
from ..systems.system import System
from ..systems.train_step.scenario import TrainScenario
from ..systems.weight_update.scenario import Scenario

_Asked = TypeVar("_Asked", bound=BaseModel)


def check_question(table: Mapping[str, Any], where: str = "scenario") -> AnyScenario:
    """The scenario of any kind that a table of plain values says, or a UserError with a line per fault."""
    found: AnyScenario = _check(_system_of(table, where), table, where)
    return found


def check_values(table: Mapping[str, Any], where: str) -> None:
    """Raise a UserError where a key has a value that it may never have, whatever the others say."""
    system = _system_of(table, where)
    checked(system.schema, _tuples(system.fill(table, where)), where)


def _system_of(table: Mapping[str, Any], where: str) -> System:
    _check_no_sweep(table, where)
    kind = table.get("kind", "weight_update")
    if kind not in tuple(SYSTEMS):
        *others, last = map(repr, SYSTEMS)
        raise UserError(fault(where, "kind", kind, f"input should be {', '.join(others)} or {last}"))
    return SYSTEMS[kind]


def check_scenario(table: Mapping[str, Any], where: str = "scenario") -> Scenario:
    """The same for a scenario of kind weight_update."""
    found: Scenario = _check(SYSTEMS["weight_update"], table, where)
    return found


def check_cycle(table: Mapping[str, Any], where: str = "scenario") -> CycleScenario:
    """The same for a scenario of kind rl_cycle."""
    found: CycleScenario = _check(SYSTEMS["rl_cycle"], table, where)
    return found


def check_train(table: Mapping[str, Any], where: str = "scenario") -> TrainScenario:
    """The same for a scenario of kind train_step; where it is silent, its stack speaks."""
    found: TrainScenario = _check(SYSTEMS["train_step"], table, where)
    return found


def _check(system: System, table: Mapping[str, Any], where: str) -> Any:
    """A scenario of which every key has a value that is allowed, and says something beside the others."""
    _check_no_sweep(table, where)
    filled = system.fill(table, where)
    found = checked(system.schema, _tuples(filled), where)
    if lines := faults(Values(filled, system.schema), system.needs, system.rivals, where):
        raise UserError(*lines)
    return found


def _check_no_sweep(table: Mapping[str, Any], where: str) -> None:
    """What has a base and what varies is many scenarios, and none of its keys is known to one."""
    if "base" in table and {"axes", "points"} & table.keys():
        raise UserError(f"{where}: is a sweep: runcast sweep {where}")


def checked(schema: type[_Asked], table: Mapping[str, Any], where: str) -> _Asked:
    """What a table of plain values says by a schema, or a UserError with a line per fault."""
    try:
        return schema.model_validate(table)
    except ValidationError as error:
        raise UserError(*(_line(schema, where, one) for one in error.errors(include_url=False))) from error


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
        table = next(_tables_in(field.annotation), table) if field else table
    return table


def _tables_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The tables that a key may hold: one that may be left out is `Table | None`, some are `list[Table]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _tables_in(inner)


def _fields(schema: type[BaseModel], path: list[str]) -> dict[str, FieldInfo]:
    """The keys beside the last one of the path, as files spell them."""
    return {field.alias or name: field for name, field in _table_of(schema, path).model_fields.items()}


def _known(schema: type[BaseModel], path: list[str]) -> str:
    return hint(path[-1], sorted(_fields(schema, path)), most=2)


def _meaning(schema: type[BaseModel], path: list[str]) -> str:
    field = _fields(schema, path).get(path[-1])
    return f"expected {field.description}" if field else "expected a value"
