"""Columns that reports of a kind may have, so that a name that is none is found before anything is simulated."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from ...base.errors import did_you_mean
from ...report.metric import Metric
from ...systems.registry import SYSTEMS
from .columns import column, is_left_out


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
    return _columns(SYSTEMS[kind].report.metrics)


def _columns(metrics: Iterable[Metric]) -> Columns:
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
