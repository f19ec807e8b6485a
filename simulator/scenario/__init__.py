"""Scenarios: what a file may say, reading it, and everything that its names stand for."""

from .load import check_scenario, load_scenario
from .resolve import Resolved
from .schema import Scenario

__all__ = ["Resolved", "Scenario", "check_scenario", "load_scenario"]
