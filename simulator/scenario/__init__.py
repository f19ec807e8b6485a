"""Scenarios: what a file may say, changing and reading it, and everything that its names stand for."""

from .changes import Changes, changed, parsed
from .check import check_cycle, check_question, check_scenario, check_train, check_values, checked
from .cycle import CycleScenario
from .load import load_question, load_scenario
from .needs import value_at
from .resolve import Resolved
from .resolve_cycle import ResolvedCycle, Updated
from .resolve_train import ResolvedTrain
from .resolving import AnyResolved, resolve
from .schema import Scenario
from .schemas import SCHEMAS, AnyScenario
from .shape import shape_of
from .training import TrainScenario
from .what_ifs import WhatIf, what_if, what_ifs
from .write import to_toml, toml_value

__all__ = [
    "SCHEMAS", "AnyResolved", "AnyScenario", "Changes", "CycleScenario", "Resolved", "ResolvedCycle", "ResolvedTrain",
    "Scenario", "TrainScenario", "Updated", "WhatIf", "changed", "check_cycle", "check_question", "check_scenario",
    "check_train", "check_values", "checked", "load_question", "load_scenario", "parsed", "resolve", "shape_of",
    "to_toml", "toml_value", "value_at", "what_if", "what_ifs",
]  # fmt: skip
