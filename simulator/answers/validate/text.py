"""Tables of validations and ledgers as text, and a validation in words and one table, for the terminal."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd

from ...base.units import format_seconds
from .summary import FEW, median_over_devices, shares, told
from .validation import Validation

Columns = Mapping[str, tuple[str, str]]
"""A table's columns by their keys: heading, and how a value is written (a key of `_FORMATS`)."""

_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "text": str, "seconds": format_seconds, "signed": "{:+.1%}".format, "share": "{:.1%}".format,
    "signed percent": lambda value: f"{100 * value:+.1f}", "percent": lambda value: f"{100 * value:.1f}",
    "yes": lambda value: "yes" if value else "no",
}  # fmt: skip
"""`percent` rounds a hundredfold value, `share` the value itself: halves go other ways."""


def telling(rows: pd.DataFrame, columns: Columns) -> Columns:
    """The columns in which any row says something: nothing is left out before a fit is there."""
    return {key: shown for key, shown in columns.items() if key in rows and rows[key].notna().any()}


def terminal(rows: pd.DataFrame, columns: Columns) -> str:
    """A table of the terminal."""
    return pd.DataFrame(list(_cells(rows, columns)), columns=_headings(columns)).to_string(index=False)


def markdown_table(rows: pd.DataFrame, columns: Columns) -> Iterator[str]:
    """A table of a page."""
    yield f"| {' | '.join(_headings(columns))} |"
    yield "|" + "---|" * len(columns)
    for cells in _cells(rows, columns):
        yield f"| {' | '.join(cells)} |"


def _headings(columns: Columns) -> list[str]:
    return [heading for heading, _ in columns.values()]


def _cells(rows: pd.DataFrame, columns: Columns) -> Iterator[list[str]]:
    for row in rows.to_dict("records"):
        yield [_cell(row[key], written) for key, (_, written) in columns.items()]


def _cell(value: Any, written: str) -> str:
    if value is None or value != value:
        return "-"
    return value if isinstance(value, str) else _FORMATS[written](value).removesuffix("%")


def share_or_count(share: float | None, held: int, rows: int) -> Any:
    """The share of rows in the interval; of few rows how many are."""
    return f"{held}/{rows}" if 0 < rows < FEW else share


_COLUMNS: Columns = {
    "device": ("device", "text"), "cost_class": ("class", "text"), "library": ("library", "text"),
    "rows": ("rows", "text"), "predicted": ("predicted", "text"), "scored": ("scored", "text"),
    "median_abs_error": ("median %", "percent"), "p90_abs_error": ("p90 %", "percent"), "bias": ("bias %", "percent"),
    "interval_coverage": ("in interval %", "percent"),
}  # fmt: skip
_HELD_OUT: Columns = {
    "held_out_median_abs_error": ("left-out median %", "percent"),
    "held_out_p90_abs_error": ("left-out p90 %", "percent"),
}  # fmt: skip


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
    rows = [
        {**of, "interval_coverage": share_or_count(of["interval_coverage"], _held(of), of["scored"])} for of in groups
    ]
    return terminal(pd.DataFrame(rows, dtype=object), {**_COLUMNS, **(_HELD_OUT if seen else {})})


def _held(group: dict[str, Any]) -> int:
    return round((group["interval_coverage"] or 0.0) * group["scored"])


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
