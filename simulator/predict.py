"""The Python API of `runcast simulate`: a scenario in, a Prediction out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import engine
from .report import Report, make_report
from .scenario import Resolved, Scenario, load_scenario
from .timeline import Timeline


@dataclass(frozen=True)
class Prediction:
    """What a scenario resolves to, what happens when, and the report."""

    resolved: Resolved
    timeline: Timeline
    report: Report


def simulate(scenario: Scenario | str | Path, changes: Sequence[str] = ()) -> Prediction:
    """Predict a scenario, given as a value or as a file with `key=value` changes.

    Raises:
        UserError: the scenario says something that is not allowed, one line per fault.
    """
    where = "scenario" if isinstance(scenario, Scenario) else str(scenario)
    checked = scenario if isinstance(scenario, Scenario) else load_scenario(scenario, changes)
    resolved = Resolved(checked, where)
    timeline = engine.simulate(resolved.program, resolved.costs)
    return Prediction(resolved, timeline, make_report(resolved, timeline))
