"""Where cost models write: one row of columns per op, filled kind by kind, then frozen into Costs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..base.op_kinds import op_kind
from ..collectives import Price
from ..profile import PROVENANCE, Parameter, Profile
from ..program import Program, Ragged
from .costs import Costs, Floats, bytes_by_link

Ops = NDArray[np.int64]


@dataclass(frozen=True)
class Term:
    """Seconds of each op (or one number for all), the parameter they rest on, and whether they are shared work."""

    seconds: Floats | float
    parameter: Parameter
    work: bool = False

    def of(self, ops: Ops) -> "Term":
        """Of some of the ops, by position."""
        return self if np.ndim(self.seconds) == 0 else replace(self, seconds=np.asarray(self.seconds)[ops])


@dataclass(frozen=True)
class Prices:
    """Prices of many by number, as columns; `row` is which row of `demand` each one asks of links."""

    seconds: Floats
    spread: Floats
    provenance: Ops
    row: Ops
    demand: Ragged
    rates: Floats


class Sheet:
    """Costs in the making."""

    def __init__(self, program: Program, capacity_bytes_per_s: Floats):
        self.program, self.capacity = program, capacity_bytes_per_s
        self._latency, self._work = np.zeros(len(program)), np.zeros(len(program))
        self._spread, self._provenance = np.zeros(len(program)), np.zeros(len(program), np.int64)
        self._row = np.zeros(len(program), np.int64)
        self._links: list[Sequence[int] | Ops] = [()]
        self._rates: list[Sequence[float] | Floats] = [()]
        self._unwatched = np.zeros(len(capacity_bytes_per_s))

    def charge(self, ops: Ops, terms: Sequence[Term]) -> None:
        """The time of the ops is the sum of the terms; spread adds in squares, the largest term gives provenance."""
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
        """The price of each of the ops."""
        self._work[ops] = [price.seconds for price in prices]
        self._spread[ops] = [price.spread for price in prices]
        self._provenance[ops] = [price.provenance for price in prices]
        self._row[ops] = np.arange(len(ops)) + len(self._links)
        self._links.extend(list(price.demand) for price in prices)
        self._rates.extend(list(price.demand.values()) for price in prices)

    def enter_all(self, ops: Ops, prices: Prices, which: Ops) -> None:
        """Op i has price `which[i]`."""
        self._work[ops] = prices.seconds[which]
        self._spread[ops] = prices.spread[which]
        self._provenance[ops] = prices.provenance[which]
        self._row[ops] = len(self._links) + prices.row[which]
        bounds = prices.demand.start[1:-1]
        self._links.extend(np.split(prices.demand.values, bounds))
        self._rates.extend(np.split(np.minimum(prices.rates, self.capacity[prices.demand.values]), bounds))

    def demand(self, ops: Ops, links: Sequence[int] | Ops, rates: Sequence[float] | Floats) -> None:
        """At full speed each of the ops puts `rates` bytes/s on `links`."""
        self._row[ops] = len(self._links)
        self._links.append(links)
        self._rates.append(rates)

    def demand_each(self, ops: Ops, which: Ops, links: Ops, rates: Floats) -> None:
        """At full speed op i puts `rates[which[i]]` bytes/s on `links[which[i]]`, both of shape [rows, links]."""
        self._row[ops] = len(self._links) + which
        self._links.extend(links)
        self._rates.extend(rates)

    def carry(self, links: Ops, size_bytes: Floats) -> None:
        """Bytes on links that need no watching, because the ops of one lane alone cross them."""
        np.add.at(self._unwatched, links, size_bytes)

    def watched(self, ops: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Mask of the links on which some of the ops put something so far."""
        mask = np.zeros(len(self.capacity), bool)
        for row in np.unique(self._row[ops]).tolist():
            mask[np.asarray(self._links[row], np.int64)] = True
        return mask

    def costs(self, profile: Profile, link_names: tuple[str, ...], like: Ops | slice = slice(None)) -> Costs:
        """Freeze; each op takes the price of op `like[op]`, or its own."""
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
    for name, parameter in profile.parameters.items():
        head, *pair = name.split(".")
        if head == "interference" and set(pair) <= set(families):
            factors[families.index(pair[0]), families.index(pair[1])] = parameter.value
    return factors
