"""Sides from reports, as `runcast simulate --json` writes them; a simulated scenario is one too, with its inputs."""

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from ...base.errors import UserError, fault
from ...base.files import read_json
from ...systems.weight_update.report import PHASES as STEPS_OF_UPDATES
from .side import ROUNDING, Side, summing

NEEDED: Mapping[str, tuple[str, ...]] = {
    "train_step": ("makespan_s", "interval_low_s", "interval_high_s", "split_s"),
    "weight_update": ("makespan_s", "update_time_s", "interval_low_s", "interval_high_s", "exposed"),
    "rl_cycle": ("makespan_s", "steps", "warmup", "exposed"),
}
"""By kind of report, the keys without which nothing can be compared."""

_INPUTS = (
    "gpus", "rollout_gpus", "trainer_gpus", "tokens", "tensors", "bytes", "bucket_bytes", "buckets", "rounds", "mode",
    "placement", "steps", "warmup", "model_flops_per_gpu", "mfu_convention", "device_memory_bytes",
    "price_usd_per_gpu_hour",
)  # fmt: skip
"""What a report says of its question; all other numbers are metrics, but for the time and its parts."""
_TIMES = {"interval_low_s", "interval_high_s", "compute_s", "ops"}
_HEADLINES = {
    "train_step": {"makespan_s", "step_time_s"},
    "weight_update": {"update_time_s"},
    "rl_cycle": {"makespan_s"},
}
_TWICE = {"cost", "energy_j", "energy_j_per_million_tokens", "energy_j_of_pause"}  # in $ and kWh too
_PARTS = {f"{phase}_s" for phase in STEPS_OF_UPDATES}


def read_report(path: Path) -> Side:
    """The side that a report file holds.

    Raises:
        UserError: it cannot be read, is no report, or was written by another version and lacks what is needed.
    """
    report, where = read_json(path), str(path)
    kind = report.get("kind") if isinstance(report, dict) else None
    if not isinstance(kind, str) or kind not in NEEDED:
        raise UserError(fault(where, "kind", kind, f"expected a report of {', '.join(NEEDED)}, of `simulate --json`"))
    if missing := [key for key in NEEDED[kind] if key not in report]:
        lacks = f"lacks {', '.join(missing)}; another version of runcast wrote it: simulate its scenario again"
        raise UserError(f"{where}: this report {lacks}")
    _check(report, where)
    return side_of_report(report, where)


def side_of_report(report: Mapping[str, Any], where: str) -> Side:
    """The side that a report as plain values is."""
    kind = report["kind"]
    total_s, interval, terms = _TIME[kind](report)
    return Side(
        where=where,
        source="report",
        label=str(report.get("name", where)),
        kind=kind,
        total_s=total_s,
        interval=interval,
        terms=summing(terms, total_s),
        inputs={key: report[key] for key in _INPUTS if key in report},
        metrics=_metrics(report),
        fits=report.get("fits") is not False,
        hash=report.get("scenario_hash"),
        question=str(report.get("question", "")),
        notes=tuple(report.get("notes", ())),
    )


def _metrics(report: Mapping[str, Any]) -> dict[str, float]:
    parts = _PARTS if report["kind"] == "weight_update" else set()
    left_out = {*_INPUTS, *_TIMES, *_TWICE, *parts, *_HEADLINES[report["kind"]]}
    return {key: value for key, value in report.items() if key not in left_out and _is_number(value)}


Time = tuple[float, tuple[float, float] | None, Mapping[str, float]]


def _of_step(report: Mapping[str, Any]) -> Time:
    return report["makespan_s"], (report["interval_low_s"], report["interval_high_s"]), report["split_s"]


def _of_update(report: Mapping[str, Any]) -> Time:
    """The update proper: what lies before it is taken off the phase that its opening is of.

    An update through engines opens with its metadata gathered, which nothing else gathers; one from trainers with
    requests stopped, a call.
    """
    update_s, exposed = report["update_time_s"], dict(report["exposed"])
    opening = "gather" if exposed.get("gather") else "calls"
    left_s = exposed.pop(opening, 0.0) - (report["makespan_s"] - update_s)
    terms = exposed | ({opening: left_s} if abs(left_s) > ROUNDING * update_s else {})
    return update_s, (report["interval_low_s"], report["interval_high_s"]), terms


def _of_cycle(report: Mapping[str, Any]) -> Time:
    """Per step, the warm-up counted, so that cycles of different lengths stand beside each other."""
    steps = report["steps"] + report["warmup"]
    return report["makespan_s"] / steps, None, {name: value / steps for name, value in report["exposed"].items()}


_TIME = {"train_step": _of_step, "weight_update": _of_update, "rl_cycle": _of_cycle}


def _check(report: Mapping[str, Any], where: str) -> None:
    for key in NEEDED[report["kind"]]:
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
    if report["kind"] == "weight_update" and not 0 < report["update_time_s"] <= report["makespan_s"]:
        allowed = f"expected a time above zero, at most makespan_s = {report['makespan_s']:.6g}"
        raise UserError(fault(where, "update_time_s", report["update_time_s"], allowed))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
