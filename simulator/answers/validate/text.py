"""A validation in words and one table, for the terminal."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from .coverage import FEW, told
from .summary import median_over_devices, shares
from .validation import Validation

_COLUMNS = {
    "device": "device",
    "cost_class": "class",
    "library": "library",
    "rows": "rows",
    "predicted": "predicted",
    "scored": "scored",
    "median_abs_error": "median %",
    "p90_abs_error": "p90 %",
    "bias": "bias %",
    "interval_coverage": "in interval %",
}
_HELD_OUT = {"held_out_median_abs_error": "left-out median %", "held_out_p90_abs_error": "left-out p90 %"}


def lines(validation: Validation) -> Iterator[str]:
    """The table of errors, the total, what is in-sample and what was not predicted."""
    yield _table(validation.groups)
    yield ""
    yield _total(validation.overall)
    yield from _over_devices(validation)
    yield from _confidences(validation.groups)
    yield from _basis(validation)
    yield from _in_sample(validation)
    yield from (f"not predicted: {line}" for line in validation.not_predicted())


def _table(groups: list[dict[str, Any]]) -> str:
    seen = any(group["held_out_median_abs_error"] is not None for group in groups)
    columns = _COLUMNS | (_HELD_OUT if seen else {})
    rows = [[_cell(column, _shown(group, key)) for key, column in columns.items()] for group in groups]
    return pd.DataFrame(rows, columns=list(columns.values())).to_string(index=False)


def _cell(column: str, value: Any) -> str:
    if value is None:
        return "-"
    return _percent(value) if "%" in column and not isinstance(value, str) else str(value)


def _shown(group: dict[str, Any], key: str) -> Any:
    """A value; of few rows how many are in the interval, not which share."""
    few = key == "interval_coverage" and 0 < group["scored"] < FEW
    return f"{_held(group)}/{group['scored']}" if few else group[key]


def _held(group: dict[str, Any]) -> int:
    return round(group["interval_coverage"] * group["scored"])


def _confidences(groups: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each group whose intervals hold clearly too little, or too much."""
    for group in groups:
        if group["scored"]:
            what = " ".join(filter(None, (group["device"], group["cost_class"], group["library"])))
            yield from told(what, _held(group), group["scored"])


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _total(overall: dict[str, Any]) -> str:
    counts = f"total: {overall['rows']:,} rows, {overall['predicted']:,} predicted, {overall['scored']:,} scored"
    if not overall["scored"]:
        return counts
    median, p90, bias, held = (
        _percent(overall[key]) for key in ("median_abs_error", "p90_abs_error", "bias", "interval_coverage")
    )
    return f"{counts}: median {median} %, p90 {p90} %, bias {bias} %, {held} % in the 90 % interval"


def _over_devices(validation: Validation) -> Iterator[str]:
    over = median_over_devices(validation.table)
    if over is not None:
        plain = _percent(validation.overall["median_abs_error"])
        yield f"median over devices of each device's median: {_percent(over)} % (plain median: {plain} %)"


def _basis(validation: Validation) -> Iterator[str]:
    found = shares(validation.table["provenance"])
    if found:
        yield "predictions are " + ", ".join(f"{_percent(share)} % {label}" for label, share in found.items())


def _in_sample(validation: Validation) -> Iterator[str]:
    """One line per profile that was fitted on this file, with its errors on rows that its fits had not seen."""
    by_profile: dict[str, list[dict[str, Any]]] = {}
    for group in validation.groups:
        if group["in_sample"]:
            by_profile.setdefault(validation.seen[group["device"]], []).append(group)
    for profile, groups in by_profile.items():
        yield f"in-sample: profile {profile} was fitted on this file; errors on rows left out: {_left_out(groups)}"


def _left_out(groups: list[dict[str, Any]]) -> str:
    known = [group for group in groups if group["held_out_median_abs_error"] is not None]
    if not known:
        return "not known"
    median, p90 = (_range([group[key] for group in known]) for key in _HELD_OUT)
    rows = sum(group["held_out_rows"] for group in known)
    return f"median {median} %, p90 {p90} % ({rows:,} rows)"


def _range(values: list[float]) -> str:
    low, high = _percent(min(values)), _percent(max(values))
    return low if low == high else f"{low} to {high}"
