"""Scenarios: what a file may say, changing and reading it, and everything that its names stand for."""

from ..base.files import to_toml, toml_value
from ..systems.keys import value_at
from ..systems.registry import SYSTEMS, AnyScenario, resolve
from .changes import Changes, change, multiplies, parse_changes, plain_values, read_axes, read_changes, with_plan
from .check import check_question, check_scenario, check_train, check_values
from .load import Given, WhatIf, load_question, load_scenario, open_report, open_table, retitle, what_if, what_ifs

__all__ = [
    "SYSTEMS", "AnyScenario", "Changes", "Given", "WhatIf", "change", "check_question", "check_scenario",
    "check_train", "check_values", "load_question", "load_scenario", "multiplies", "open_report", "open_table",
    "parse_changes", "plain_values", "read_axes", "read_changes", "resolve", "retitle", "to_toml", "toml_value",
    "value_at", "what_if", "what_ifs", "with_plan",
]  # fmt: skip
