"""Scenarios: what a file may say, changing and reading it, and everything that its names stand for."""

from ..base.toml import to_toml, toml_value
from ..systems.keys import value_at
from ..systems.registry import SYSTEMS, AnyResolved, AnyScenario, resolve
from ..systems.rl_cycle.resolve import ResolvedCycle, Updated
from ..systems.rl_cycle.scenario import CycleScenario
from ..systems.shape import shape_of
from ..systems.train_step.resolve import ResolvedTrain
from ..systems.train_step.scenario import TrainScenario
from ..systems.weight_update.resolve import Resolved
from ..systems.weight_update.scenario import Scenario
from .changes import Changes, changed, parsed
from .check import check_cycle, check_question, check_scenario, check_train, check_values
from .load import WhatIf, load_question, load_scenario, what_if, what_ifs

__all__ = [
    "SYSTEMS",
    "AnyResolved",
    "AnyScenario",
    "Changes",
    "CycleScenario",
    "Resolved",
    "ResolvedCycle",
    "ResolvedTrain",
    "Scenario",
    "TrainScenario",
    "Updated",
    "WhatIf",
    "changed",
    "check_cycle",
    "check_question",
    "check_scenario",
    "check_train",
    "check_values",
    "load_question",
    "load_scenario",
    "parsed",
    "resolve",
    "shape_of",
    "to_toml",
    "toml_value",
    "value_at",
    "what_if",
    "what_ifs",
]  # fmt: skip
