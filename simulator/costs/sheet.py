"""The sheet to which cost models write: one entry per op, filled kind by kind, then turned into Costs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Floats
from ..base.op_kinds import op_kind
from ..collectives import Price
from ..profile import PROVENANCE, Parameter, Profile
from ..program import Program, Ragged
from .costs import Costs, bytes_by_link

Ops = NDArray[np.int64]


@dataclass(frozen=True)
class Term:
    """A part of the time of ops: seconds of each op (or one number for all) and the parameter that they come from.

    `work`: whether it is work, which contention slows down, or latency.
    """

    seconds: Floats | float
    parameter: Parameter
    work: bool = False

    def take(self, ops: Ops) -> "Term":
        """The term for some of the ops, by position."""
        return self if np.ndim(self.seconds) == 0 else replace(self, seconds=np.asarray(self.seconds)[ops])


@dataclass(frozen=True)
class Prices:
    """Many prices as columns, by number; `row` is the row of `demand` with the rates that each asks of links."""

    seconds: Floats
    spread: Floats
    provenance: Ops
    row: Ops
    demand: Ragged
    rates: Floats


class Sheet:
    """Collects the prices of ops for Costs."""

    def __init__(self, program: Program, capacity_bytes_per_s: Floats):
        self.program, self.capacity = program, capacity_bytes_per_s
        self._latency, self._work = np.zeros(len(program)), np.zeros(len(program))
        self._spread, self._provenance = np.zeros(len(program)), np.zeros(len(program), np.int64)
        self._row = np.zeros(len(program), np.int64)
        self._links: list[Sequence[int] | Ops] = [()]
        self._rates: list[Sequence[float] | Floats] = [()]
        self._unwatched = np.zeros(len(capacity_bytes_per_s))

    def charge(self, ops: Ops, terms: Sequence[Term]) -> None:
        """Set the time of ops to the sum of terms; spreads add in squares, the largest term sets the provenance."""
        seconds = np.array([np.broadcast_to(np.asarray(term.seconds, float), ops.shape) for term in terms])
        shared = np.array([term.work for term in terms])
        self._latency[ops] = seconds[~shared].sum(axis=0)
        self._work[ops] = seconds[shared].sum(axis=0)
        spreads = np.array([term.parameter.spread for term in terms])[:, None]
        total = seconds.sum(axis=0)
        error = np.sqrt(((seconds * spreads) ** 2).sum(axis=0))
        self._spread[ops] = np.divide(error, total, out=np.zeros_like(error), where=total > 0)
        labels = np.array([PROVENANCE.index(term.parameter.provenance) for term in terms])
        self._provenance[ops] = labels[seconds.argmax(axis=0)]

    def enter(self, ops: Ops, prices: Sequence[Price]) -> None:
        """Set the price of each op."""
        self._latency[ops] = [price.latency_s for price in prices]
        self._work[ops] = [price.work_s for price in prices]
        self._spread[ops] = [price.spread for price in prices]
        self._provenance[ops] = [price.provenance for price in prices]
        self._row[ops] = np.arange(len(ops)) + len(self._links)
        self._links.extend(list(price.demand) for price in prices)
        self._rates.extend(list(price.demand.values()) for price in prices)

    def enter_all(self, ops: Ops, prices: Prices, which: Ops) -> None:
        """Set the price of `ops[i]` to number `which[i]` of `prices`."""
        self._work[ops] = prices.seconds[which]
        self._spread[ops] = prices.spread[which]
        self._provenance[ops] = prices.provenance[which]
        self._row[ops] = len(self._links) + prices.row[which]
        bounds = prices.demand.start[1:-1]
        self._links.extend(np.split(prices.demand.values, bounds))
        self._rates.extend(np.split(np.minimum(prices.rates, self.capacity[prices.demand.values]), bounds))

    def demand(self, ops: Ops, links: Sequence[int] | Ops, rates: Sequence[float] | Floats) -> None:
        """Set the rates of ops: at full speed each of them puts `rates` bytes/s on `links`."""
        self._row[ops] = len(self._links)
        self._links.append(links)
        self._rates.append(rates)

    def demand_each(self, ops: Ops, which: Ops, links: Ops, rates: Floats) -> None:
        """Set the rates of ops: at full speed op i puts `rates[which[i]]` bytes/s on `links[which[i]]`.

        `links` and `rates` have shape [rows, links].
        """
        self._row[ops] = len(self._links) + which
        self._links.extend(links)
        self._rates.extend(rates)

    def carry(self, links: Ops, size_bytes: Floats) -> None:
        """Count bytes on links that only ops of one lane cross, so that nothing can contend there."""
        np.add.at(self._unwatched, links, size_bytes)

    def busy_links(self, ops: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """A mask of the links to which some of these ops have rates so far."""
        mask = np.zeros(len(self.capacity), bool)
        for row in np.unique(self._row[ops]).tolist():
            mask[np.asarray(self._links[row], np.int64)] = True
        return mask

    def costs(self, profile: Profile, link_names: tuple[str, ...], like: Ops | slice = slice(None)) -> Costs:
        """The finished Costs; op i gets the price of op `like[i]` (default: its own)."""
        demand = Ragged(
            np.concatenate(([0], np.cumsum([len(links) for links in self._links]))),
            np.concatenate([np.asarray(links, np.int64) for links in self._links]),
        )
        work, row = self._work[like], self._row[like]
        rates = np.concatenate([np.asarray(rates, np.float64) for rates in self._rates])
        watched = bytes_by_link(work, row, demand, rates, len(self.capacity))
        of_kind = [op_kind(kind).family or kind for kind in self.program.kinds]
        families = tuple(dict.fromkeys(of_kind))
        return Costs(
            latency_s=self._latency[like],
            work_s=work,
            row=row,
            demand=demand,
            rate_bytes_per_s=rates,
            capacity_bytes_per_s=self.capacity,
            link_bytes=watched + self._unwatched,
            link_names=link_names,
            classes=families,
            cost_class=np.array([families.index(family) for family in of_kind], np.int64)[self.program.kind],
            provenance=self._provenance[like],
            spread=self._spread[like],
            interference=_interference(families, profile),
        )


def _interference(families: tuple[str, ...], profile: Profile) -> Floats:
    factors = np.ones((len(families), len(families)))
    for (i, victim), (j, aggressor) in product(enumerate(families), repeat=2):
        factors[i, j] = profile.value_or(f"interference.{victim}.{aggressor}", 1.0)
    return factors
