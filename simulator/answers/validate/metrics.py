"""A number of a run's report by its name, or a ratio of two, as a row of the ledger of runs says it."""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from ...base.errors import UserError, hint
from ...systems.run.report import RunReport


def value_of(report: Mapping[str, Any], metric: str) -> float:
    """A number of a report as JSON: `goodput`, `counts.failures`, or a ratio of two: `breakdown_s.lost / wall_s`.

    Raises:
        UserError: the report has no such number, or it is divided by none.
    """
    above, *below = (_number(report, key.strip()) for key in metric.split("/", 1))
    if below and not below[0]:
        raise UserError(f"metric = {metric!r}: divides by zero here")
    return above / below[0] if below else above


def _number(report: Mapping[str, Any], key: str) -> float:
    found: Any = report
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            if found is not report and key in _sparse():
                return 0.0
            raise UserError(f"metric = {key!r}: unknown; {hint(key, _names(report))}")
        found = found[part]
    if isinstance(found, bool) or not isinstance(found, int | float) or not isfinite(found):
        raise UserError(f"metric = {key!r}: is no number here")
    return float(found)


def _sparse() -> set[str]:
    """Metrics that a report leaves out where they are zero."""
    return {f"{one.name}.{name}" for one in RunReport.metrics if one.sparse for name in one.names}


def _names(report: Mapping[str, Any]) -> Iterator[str]:
    """Every number of a report by its key, those of a step's report left out."""
    for key, value in report.items():
        if isinstance(value, Mapping) and key != "step":
            yield from (f"{key}.{name}" for name in value)
        elif isinstance(value, int | float):
            yield key
