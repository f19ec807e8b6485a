"""The columns that reports of a kind may have as flat rows.

As columns are known before anything is simulated, a wrong name is found then.
"""

from collections.abc import Iterable, Mapping
from functools import cache

from ...base.errors import did_you_mean
from ...report.columns import ERRORS, LEFT_OUT, column, flat_columns
from ...report.report import Metric
from ...systems.registry import SYSTEMS

__all__ = ["BEYOND", "ERRORS", "columns_of", "flat_columns", "nearest_columns"]

BEYOND = "not_in_interval"
"""The column that says, where it is so, why a point may take longer than its interval says."""


@cache
def columns_of(kind: str) -> Mapping[str, Metric]:
    """The columns of reports of a kind, each with its metric; a row leaves out the sparse ones where they are 0.

    A report inside a report has its own columns, after its name, which is a column that is empty without it.
    """
    found: dict[str, Metric] = {}
    for one in SYSTEMS[kind].report.metrics:
        if one.names:
            found |= {column(one.name, name): one for name in one.names}
        elif one.inner is not None or (one.name not in LEFT_OUT and not one.by_rank):
            found[one.name] = one
        if one.inner is not None:
            found |= {f"{one.name}_{name}": inner for name, inner in columns_of(one.inner).items()}
    return found


def nearest_columns(kind: str, name: str, others: Iterable[str] = ()) -> str:
    """The nearest columns or `others`, or all that every report of the kind has."""
    usual = [name for name, metric in columns_of(kind).items() if not metric.sparse]
    sparse = sorted(name for name, metric in columns_of(kind).items() if metric.sparse)
    return did_you_mean(name, [*others, *usual, *sparse]) or f"known: {', '.join(usual)}"
