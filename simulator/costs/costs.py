"""Costs: the time of each op of a Program without contention, and the rates that it asks of links, as parallel arrays.

The values come from the cost models beside this file, or from `kind_costs` in tests that state them directly. What-ifs
change Costs and never rebuild the Program.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Floats
from ..program import Program, Ragged, group_equal


@dataclass(frozen=True, eq=False)
class Costs:
    """Arrays with one entry per op, unless stated otherwise.

    An op takes `latency_s` seconds, which are never shared, then `work_s` seconds at full speed. During its work it
    puts `rate_bytes_per_s[k]` on link `demand.values[k]` for each `k` of its row `row[op]` of `demand`. Ops with equal
    rates share a row. Rows may omit links that only ops of one lane cross. `link_bytes` counts these links too: it is
    the bytes that all ops together put on each link.

    `cost_class` and `provenance` index `classes` and `PROVENANCE`. `spread` is the relative standard deviation of the
    op's time. `capacity_bytes_per_s` has one entry per link. `interference[victim, aggressor]` is the share of its
    speed, in (0, 1], that an op of one class keeps beside an op of the other class on the same rank.
    """

    latency_s: Floats
    work_s: Floats
    row: NDArray[np.int64]
    demand: Ragged
    rate_bytes_per_s: Floats
    capacity_bytes_per_s: Floats
    link_bytes: Floats
    link_names: tuple[str, ...]
    classes: tuple[str, ...]
    cost_class: NDArray[np.int64]
    provenance: NDArray[np.int64]
    spread: Floats
    interference: Floats

    @property
    def uncontended_s(self) -> Floats:
        """Seconds of each op without contention."""
        return self.latency_s + self.work_s

    def demand_of(self, op: int) -> tuple[NDArray[np.int64], Floats]:
        """(the links that an op crosses, the bytes per second that it puts on each at full speed)."""
        return self.demand_row(int(self.row[op]))

    def demand_row(self, row: int) -> tuple[NDArray[np.int64], Floats]:
        """(links, bytes per second) of one row of `demand`."""
        part = slice(self.demand.start[row], self.demand.start[row + 1])
        return self.demand.values[part], self.rate_bytes_per_s[part]

    def scale(self, ops: NDArray[np.bool_], factor: float) -> "Costs":
        """The same costs with the time of the ops in the mask multiplied by `factor`, and their rates divided by it."""
        rows, first_op = _rows_by(self.row, ops)
        scale = np.where(ops[first_op], 1 / factor, 1.0)
        demands = [self.demand_of(op) for op in first_op.tolist()]
        return replace(
            self,
            latency_s=np.where(ops, self.latency_s * factor, self.latency_s),
            work_s=np.where(ops, self.work_s * factor, self.work_s),
            row=rows,
            demand=Ragged.build([links.tolist() for links, _ in demands]),
            rate_bytes_per_s=np.concatenate(
                [np.empty(0), *(rates * x for (_, rates), x in zip(demands, scale, strict=True))]
            ),
        )

    def prune(self, program: Program) -> "Costs":
        """The same costs without links that can never be full, so that fewer ops can contend.

        A lane runs one op at a time. So a link's load is at most the sum over lanes of the highest rate that an op of
        the lane asks of it. An op with several lanes counts for its first lane.
        """
        first_lane = program.lanes_of.values[program.lanes_of.start[:-1]]
        asks = first_lane * len(self.demand) + self.row
        lane, row = np.divmod(asks[group_equal(asks)[0]], len(self.demand))
        at, pair = self.demand.positions(row)
        links = len(self.capacity_bytes_per_s)
        keys = lane[pair] * links + self.demand.values[at]
        first, which = group_equal(keys)
        most = np.zeros(len(first))
        np.maximum.at(most, which, self.rate_bytes_per_s[at])
        load = np.bincount(keys[first] % links, most, minlength=links)
        return self._without(load <= self.capacity_bytes_per_s * (1 + 1e-9))

    def _without(self, links: NDArray[np.bool_]) -> "Costs":
        kept = ~links[self.demand.values]
        start = np.concatenate(([0], np.cumsum(kept)))[self.demand.start]
        return replace(
            self,
            demand=Ragged(start, self.demand.values[kept]),
            rate_bytes_per_s=self.rate_bytes_per_s[kept],
        )


def kind_costs(
    program: Program,
    work_s: Mapping[str, float],
    *,
    latency_s: Mapping[str, float] | None = None,
    demand: Mapping[int, Mapping[int, float]] | None = None,
    capacity_bytes_per_s: tuple[float, ...] = (),
    interference: Mapping[tuple[str, str], float] | None = None,
) -> Costs:
    """Costs from seconds per kind of op (default 0) and, where links matter, rates {op: {link: bytes/s}}.

    Each kind is its own cost class, so `interference` is {(victim kind, aggressor kind): share of speed kept}.
    """
    seconds = np.array([work_s.get(kind, 0.0) for kind in program.kinds], np.float64)
    latency = np.array([(latency_s or {}).get(kind, 0.0) for kind in program.kinds], np.float64)
    factors = np.ones((len(program.kinds), len(program.kinds)))
    for (victim, aggressor), factor in (interference or {}).items():
        factors[program.kinds.index(victim), program.kinds.index(aggressor)] = factor
    rows: dict[tuple[tuple[int, float], ...], int] = {(): 0}
    row = np.zeros(len(program), np.int64)
    for op, asked in (demand or {}).items():
        row[op] = rows.setdefault(tuple(asked.items()), len(rows))
    links = Ragged.build([[link for link, _ in entries] for entries in rows])
    rates = np.array([rate for entries in rows for _, rate in entries], np.float64)
    work = seconds[program.kind]
    return Costs(
        latency_s=latency[program.kind],
        work_s=work,
        row=row,
        demand=links,
        rate_bytes_per_s=rates,
        capacity_bytes_per_s=np.array(capacity_bytes_per_s, np.float64),
        link_bytes=bytes_by_link(work, row, links, rates, len(capacity_bytes_per_s)),
        link_names=tuple(f"link {i}" for i in range(len(capacity_bytes_per_s))),
        classes=program.kinds,
        cost_class=program.kind,
        provenance=np.zeros(len(program), np.int64),
        spread=np.zeros(len(program)),
        interference=factors,
    )


def bytes_by_link(work_s: Floats, row: NDArray[np.int64], demand: Ragged, rate: Floats, links: int) -> Floats:
    """Total bytes on each of `links` links, given work in seconds and row of `demand` of each op."""
    seconds_of_row = np.bincount(row, work_s, minlength=len(demand))
    moved = np.bincount(demand.values, seconds_of_row[demand.row_of_value()] * rate, minlength=links)
    return moved.astype(np.float64)


def _rows_by(row: NDArray[np.int64], mask: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split rows by a mask of ops: (the new row of each op, one op of each new row)."""
    first, rows = group_equal(row * 2 + mask)
    return rows, first
