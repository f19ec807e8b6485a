"""Sides from reports, as `runcast simulate --json` writes them; a simulated scenario is one too, with its inputs."""

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from ...base.errors import UserError, fault
from ...base.files import read_json
from ...systems.registry import SYSTEMS
from .side import Side, summing


def read_report(path: Path) -> Side:
    """The side that a report file holds.

    Raises:
        UserError: it cannot be read, is no report, or was written by another version and lacks what is needed.
    """
    report, where = read_json(path), str(path)
    kind = report.get("kind") if isinstance(report, dict) else None
    if not isinstance(kind, str) or kind not in SYSTEMS:
        raise UserError(fault(where, "kind", kind, f"expected a report of {', '.join(SYSTEMS)}, of `simulate --json`"))
    if missing := [key for key in SYSTEMS[kind].total_needs if key not in report]:
        lacks = f"lacks {', '.join(missing)}; another version of runcast wrote it: simulate its scenario again"
        raise UserError(f"{where}: this report {lacks}")
    _check(report, where)
    return side_of_report(report, where)


def side_of_report(report: Mapping[str, Any], where: str) -> Side:
    """The side that a report as plain values is."""
    kind = report["kind"]
    total_s, interval, terms = SYSTEMS[kind].total(report)
    roles = {one.name: one.role for one in SYSTEMS[kind].report.metrics}
    return Side(
        where=where,
        source="report",
        label=str(report.get("name", where)),
        kind=kind,
        total_s=total_s,
        interval=interval,
        terms=summing(terms, total_s),
        inputs={key: value for key, value in report.items() if roles.get(key) == "input"},
        metrics={key: value for key, value in report.items() if roles.get(key) == "result" and _is_number(value)},
        fits=report.get("fits") is not False,
        hash=report.get("scenario_hash"),
        question=str(report.get("question", "")),
        notes=tuple(report.get("notes", ())),
    )


def _check(report: Mapping[str, Any], where: str) -> None:
    for key in SYSTEMS[report["kind"]].total_needs:
        value = report[key]
        parts = value if isinstance(value, Mapping) else {"": value}
        for name, number in parts.items():
            if not _is_number(number) or number < 0:
                raise UserError(fault(where, f"{key}.{name}".rstrip("."), number, "expected a number, at least 0"))
        if isinstance(value, Mapping) != (key in ("split_s", "exposed")):
            raise UserError(fault(where, key, value, "expected seconds by phase, or one number, as reports have it"))
    if report.get("interval_low_s", 0) > report.get("interval_high_s", float("inf")):
        raise UserError(fault(where, "interval_low_s", report["interval_low_s"], "expected at most interval_high_s"))
    if report["makespan_s"] <= 0 or report.get("steps", 1) < 1:
        raise UserError(fault(where, "makespan_s", report["makespan_s"], "expected a time above zero"))
    if not 0 < report.get("update_time_s", report["makespan_s"]) <= report["makespan_s"]:
        allowed = f"expected a time above zero, at most makespan_s = {report['makespan_s']:.6g}"
        raise UserError(fault(where, "update_time_s", report["update_time_s"], allowed))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
