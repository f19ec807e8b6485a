"""Scenarios: what a file may say, reading it, and everything that its names stand for."""

from .cycle import CycleScenario
from .load import check_cycle, check_scenario, load_question, load_scenario
from .resolve import Resolved
from .resolve_cycle import ResolvedCycle, Updated
from .schema import Scenario

__all__ = [
    "CycleScenario", "Resolved", "ResolvedCycle", "Scenario", "Updated", "check_cycle", "check_scenario",
    "load_question", "load_scenario",
]  # fmt: skip
