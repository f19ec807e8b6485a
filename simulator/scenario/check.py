"""From a table of plain values to a checked Scenario; every fault is one line with file, key and value."""

from collections.abc import Mapping
from typing import Any

from ..base.errors import UserError, fault
from ..base.schema import validate
from ..systems.keys import Values, faults
from ..systems.registry import SYSTEMS, AnyScenario
from ..systems.system import System
from ..systems.tables import tuples
from ..systems.train_step.scenario import TrainScenario
from ..systems.weight_update.scenario import Scenario


def check_question(table: Mapping[str, Any], where: str = "scenario") -> AnyScenario:
    """The scenario of any kind that a table of plain values says, or a UserError with a line per fault."""
    found: AnyScenario = _check(_system_of(table, where), table, where)
    return found


def check_scenario(table: Mapping[str, Any], where: str = "scenario") -> Scenario:
    """Check the table of a scenario of kind weight_update."""
    found: Scenario = _check(SYSTEMS["weight_update"], table, where)
    return found


def check_train(table: Mapping[str, Any], where: str = "scenario") -> TrainScenario:
    """Check the table of a scenario of kind train_step; its stack sets missing keys."""
    found: TrainScenario = _check(SYSTEMS["train_step"], table, where)
    return found


def check_values(table: Mapping[str, Any], where: str) -> None:
    """Raise a UserError where a key has a value that it may never have, whatever the others say."""
    system = _system_of(table, where)
    validate(system.schema, tuples(system.fill(table, where)), where)


def _system_of(table: Mapping[str, Any], where: str) -> System:
    _check_no_sweep(table, where)
    kind = table.get("kind", "weight_update")
    if kind not in tuple(SYSTEMS):
        *others, last = map(repr, SYSTEMS)
        raise UserError(fault(where, "kind", kind, f"expected {', '.join(others)} or {last}"))
    return SYSTEMS[kind]


def _check(system: System, table: Mapping[str, Any], where: str) -> Any:
    """A scenario of which every key has a value that is allowed, and says something beside the others."""
    _check_no_sweep(table, where)
    filled = system.fill(table, where)
    found = validate(system.schema, tuples(filled), where)
    if lines := faults(Values(filled, system.schema), system.needs, system.rivals, where):
        raise UserError(*lines)
    return found


def _check_no_sweep(table: Mapping[str, Any], where: str) -> None:
    """Refuse a sweep file, whose keys no scenario has, with a message that says so."""
    if "base" in table and {"axes", "points"} & table.keys():
        raise UserError(f"{where}: is a sweep: runcast sweep {where}")
