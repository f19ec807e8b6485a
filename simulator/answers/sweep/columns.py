"""A report as one flat row, and the columns that reports of a kind may have.

Names of nested values are joined by `_`, their unit last; lists and sentences are left out. That the columns are known
before anything is simulated lets a name that is none be found then.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...base.errors import did_you_mean
from ...report.report import Metric
from ...systems.registry import SYSTEMS

_LEFT_OUT = {"kind", "name", "question", "scenario_hash", "notes", "mfu_convention", "cost"}  # cost is cost_usd too
_RENAMED = {"exposed": "exposed_s", "provenance": "provenance_share"}
_UNITS = ("_s", "_bytes", "_share")


def flat_columns(report: Mapping[str, Any]) -> dict[str, Any]:
    """The scalars of `report.to_json()` by column: `step_time_s`, `exposed_gemm_s`, `cost_usd`."""
    return dict(_columns(report))


def _columns(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if is_left_out(key) or isinstance(value, list | tuple):
            continue
        if isinstance(value, Mapping):
            yield from ((column(key, inner), scalar) for inner, scalar in _columns(value))
        else:
            yield key, value


def is_left_out(key: str) -> bool:
    """Whether a key of a report is no column."""
    return key in _LEFT_OUT


def column(key: str, inner: str) -> str:
    """The column of one of the numbers by name of a report: of `exposed` and `gemm` it is `exposed_gemm_s`."""
    name = _RENAMED.get(key, key)
    words = "_".join(inner.replace(":", "").split())
    unit = next((unit for unit in _UNITS if name.endswith(unit)), "")
    return f"{name.removesuffix(unit)}_{words}{unit}"


@dataclass(frozen=True)
class Columns:
    """`usual` are columns that each row may have, of which `words` hold no numbers; `sparse` ones are left out of a row
    where they are nothing.
    """

    usual: tuple[str, ...]
    sparse: frozenset[str]
    words: frozenset[str]

    def __contains__(self, name: object) -> bool:
        return name in self.usual or name in self.sparse

    def hint(self, name: str, others: Iterable[str] = ()) -> str:
        """The nearest columns or `others`, or those that every report has."""
        near = did_you_mean(name, [*others, *self.usual, *sorted(self.sparse)])
        return near or f"known: {', '.join(self.usual)}"


@cache
def columns_of(kind: str) -> Columns:
    """The columns of reports of a kind of scenario."""
    return _of_metrics(SYSTEMS[kind].report.metrics)


def _of_metrics(metrics: Iterable[Metric]) -> Columns:
    named = list(_named(metrics))
    return Columns(
        tuple(name for name, metric in named if not metric.sparse),
        frozenset(name for name, metric in named if metric.sparse),
        frozenset(name for name, metric in named if not metric.unit),
    )


def _named(metrics: Iterable[Metric], prefix: str = "") -> Iterator[tuple[str, Metric]]:
    """Each column with its metric; a report inside a report has its own, after its name, which is empty without it."""
    for one in metrics:
        if one.inner is not None:
            yield one.name, one
            yield from _named(SYSTEMS[one.inner].report.metrics, f"{one.name}_")
        elif one.names:
            yield from ((prefix + column(one.name, name), one) for name in one.names)
        elif not is_left_out(one.name) and not one.by_rank:
            yield prefix + one.name, one
