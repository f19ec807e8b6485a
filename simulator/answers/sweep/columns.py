"""A report as one flat row, and the columns that reports of a kind may have.

Names of nested values are joined by `_`, their unit last; lists and sentences are left out. As columns are known before
anything is simulated, a wrong name is found then.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from ...base.errors import did_you_mean
from ...report.report import Metric
from ...systems.registry import SYSTEMS

ERRORS = "errors"
"""The key of a report that says which errors its time has; a sweep makes columns of the difference to the best of them.
"""
_LEFT_OUT = {
    "kind",
    "name",
    "question",
    "scenario_hash",
    "notes",
    "mfu_convention",
    "cost",
    ERRORS,
}  # cost is cost_usd too
_RENAMED = {"exposed": "exposed_s", "provenance": "provenance_share"}
_UNITS = ("_s", "_bytes", "_share")


def flat_columns(report: Mapping[str, Any]) -> dict[str, Any]:
    """The scalars of `report.to_json()` by column: `step_time_s`, `exposed_gemm_s`, `cost_usd`."""
    return dict(_columns(report))


def _columns(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if key in _LEFT_OUT or isinstance(value, list | tuple):
            continue
        if isinstance(value, Mapping):
            yield from ((_column(key, inner), scalar) for inner, scalar in _columns(value))
        else:
            yield key, value


def _column(key: str, inner: str) -> str:
    """The column of one of the numbers by name of a report: of `exposed` and `gemm` it is `exposed_gemm_s`."""
    name = _RENAMED.get(key, key)
    words = "_".join(inner.replace(":", "").split())
    unit = next((unit for unit in _UNITS if name.endswith(unit)), "")
    return f"{name.removesuffix(unit)}_{words}{unit}"


@cache
def columns_of(kind: str) -> Mapping[str, Metric]:
    """The columns of reports of a kind, each with its metric; a row leaves out the sparse ones where they are 0.

    A report inside a report has its own columns, after its name, which is a column that is empty without it.
    """
    found: dict[str, Metric] = {}
    for one in SYSTEMS[kind].report.metrics:
        if one.names:
            found |= {_column(one.name, name): one for name in one.names}
        elif one.inner is not None or (one.name not in _LEFT_OUT and not one.by_rank):
            found[one.name] = one
        if one.inner is not None:
            found |= {f"{one.name}_{name}": inner for name, inner in columns_of(one.inner).items()}
    return found


def nearest_columns(kind: str, name: str, others: Iterable[str] = ()) -> str:
    """The nearest columns or `others`, or all that every report of the kind has."""
    usual = [column for column, metric in columns_of(kind).items() if not metric.sparse]
    sparse = sorted(column for column, metric in columns_of(kind).items() if metric.sparse)
    return did_you_mean(name, [*others, *usual, *sparse]) or f"known: {', '.join(usual)}"
