"""The ledger of weight updates in words and tables, for the terminal."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from ...base.units import format_seconds
from ...formats.samples import summed
from .coverage import FEW, told
from .ledger import Ledger

_ROWS = {
    "line": "line",
    "system": "system",
    "model": "model",
    "method": "method",
    "phase": "phase",
    "gpus": "GPUs",
    "seconds": "published",
    "predicted_s": "predicted",
    "error": "error %",
    "model_left_out": "model out %",
    "system_left_out": "system out %",
}
_SUMMARY = {
    "system": "system",
    "errors": "errors",
    "rows": "rows",
    "median_abs_error": "median %",
    "p90_abs_error": "p90 %",
    "largest_abs_error": "largest %",
    "bias": "bias %",
    "interval_coverage": "in interval %",
}


def lines(ledger: Ledger) -> Iterator[str]:
    """Every row, the worst first; scores by system; how many parameters; what was not predicted."""
    if len(ledger.table):
        yield _table(ledger.worst_first, _ROWS)
        yield ""
        yield _table(ledger.summary, _SUMMARY)
        yield ""
        for row in ledger.summary.to_dict("records"):
            yield from told(f"{row['system']}, {row['errors']}", row["held"], row["held_of"])
    yield (
        f"{len(ledger.table)} of {len(ledger.table) + len(ledger.reasons)} rows predicted; {ledger.parameters} "
        "parameters of software stacks were moved by the shipped ledger, none belongs to a row"
    )
    yield from (f"not predicted: {line}" for line in summed(
        f"{ledger.path}:{line}: {reason}" for line, reason in ledger.reasons.items()
    ))  # fmt: skip


def _table(rows: pd.DataFrame, columns: dict[str, str]) -> str:
    cells = [[_cell(name, _shown(row, key)) for key, name in columns.items()] for row in rows.to_dict("records")]
    return pd.DataFrame(cells, columns=list(columns.values())).to_string(index=False)


def _shown(row: dict[Any, Any], key: str) -> Any:
    """A value; of few rows how many are in the interval, not which share."""
    few = key == "interval_coverage" and 0 < row["held_of"] < FEW
    return f"{row['held']}/{row['held_of']}" if few else row[key]


def _cell(name: str, value: Any) -> str:
    if value is None or value != value:
        return "-"
    if "%" in name and not isinstance(value, str):
        signed = name.endswith("%") and name not in ("median %", "p90 %", "largest %", "in interval %")
        return f"{100 * value:+.1f}" if signed else f"{100 * value:.1f}"
    return format_seconds(value) if isinstance(value, float) else str(value)


def markdown(ledger: Ledger) -> str:
    """The same as tables of a page: scores, every row with the worst first, and why others are not predicted."""
    reasons = summed(f"line {line}: {reason}" for line, reason in ledger.reasons.items())
    return "\n".join([
        *_markdown(ledger.summary, _SUMMARY), "", *_markdown(ledger.worst_first, _ROWS), "",
        *(f"- {reason}" for reason in reasons),
    ])  # fmt: skip


def _markdown(rows: pd.DataFrame, columns: dict[str, str]) -> Iterator[str]:
    yield f"| {' | '.join(columns.values())} |"
    yield "|" + "---|" * len(columns)
    for row in rows.to_dict("records"):
        yield f"| {' | '.join(_cell(name, _shown(row, key)) for key, name in columns.items())} |"
