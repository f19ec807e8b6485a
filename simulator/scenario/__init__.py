"""Scenarios: what a file may say, reading it, and everything that its names stand for."""

from .cycle import CycleScenario
from .load import check_cycle, check_scenario, check_train, load_question, load_scenario
from .resolve import Resolved
from .resolve_cycle import ResolvedCycle, Updated
from .resolve_train import ResolvedTrain
from .schema import Scenario
from .shape import shape_of
from .training import TrainScenario

__all__ = [
    "CycleScenario", "Resolved", "ResolvedCycle", "ResolvedTrain", "Scenario", "TrainScenario", "Updated",
    "check_cycle", "check_scenario", "check_train", "load_question", "load_scenario", "shape_of",
]  # fmt: skip
