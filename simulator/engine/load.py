"""The rates that active flows ask of links, and the speeds that they get: bookkeeping around the pure `sharing.fill`.

Neither class knows time. `Load` tracks overloaded links, so that speeds are shared only while there are some.
`Allocator` caches the speeds of sets of rows, because the same sets return in regular Programs.
"""

from functools import cached_property
from typing import Any

import numpy as np

from ..costs import Costs
from . import sharing

_SHORT = 8  # a row up to this long is walked in Python, a longer one by numpy
_MANY = 8  # with more flows than this, compiled code pays,
_COMPILE_AFTER = 100  # after this many calls
_REMEMBERED = 10_000  # cached sets of flows


class Load:
    """The total bytes per second that active flows ask of each link at full speed, and the links that are full."""

    def __init__(self, costs: Costs):
        self.full: set[int] = set()
        self._costs = costs
        self._limit = costs.capacity_bytes_per_s * sharing.TIE
        self._load = np.zeros(len(self._limit))
        self._sizes: list[int] = np.diff(costs.demand.start).tolist()
        self._short: dict[int, list[tuple[int, float, float]]] = {}
        self._links: dict[int, list[int]] = {}

    def add(self, row: int) -> None:
        """Add a flow with this row."""
        self._change(row, 1.0)

    def remove(self, row: int) -> None:
        """Remove a flow with this row."""
        self._change(row, -1.0)

    def is_full(self, row: int) -> bool:
        """Whether flows with this row cross a full link; one of them must be active."""
        return not self.full.isdisjoint(self._links[row])

    def _change(self, row: int, sign: float) -> None:
        load, full = self._load, self.full
        if self._sizes[row] <= _SHORT:
            for link, rate, limit in self._short.get(row) or self._walk(row):
                load[link] = after = load.item(link) + sign * rate
                if after > limit:
                    full.add(link)
                elif full:
                    full.discard(link)
        else:
            links, rates = self._costs.demand_row(row)
            self._links.setdefault(row, links.tolist())
            load[links] += sign * rates
            full.difference_update(self._links[row])
            full.update(links[load[links] > self._limit[links]].tolist())

    def _walk(self, row: int) -> list[tuple[int, float, float]]:
        links, rates = self._costs.demand_row(row)
        entries = list(zip(links.tolist(), rates.tolist(), self._limit[links].tolist(), strict=True))
        self._short[row], self._links[row] = entries, links.tolist()
        return entries


class Allocator:
    """The fair speeds of sets of flows, given by their rows and caps."""

    def __init__(self, costs: Costs):
        self._costs = costs
        self._known: dict[tuple[float, ...], list[float]] = {}
        self._asked = 0
        self._fill: sharing.Fill = sharing.fill
        demand = costs.demand
        self._arrays = (demand.start, demand.values, costs.rate_bytes_per_s)
        self._load = np.zeros(len(costs.capacity_bytes_per_s))

    def speeds(self, rows: list[int], caps: list[float]) -> list[float]:
        """The speed of each flow."""
        key = (*rows, *caps)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[key] = self._fresh(rows, caps)
        return known

    def _fresh(self, rows: list[int], caps: list[float]) -> list[float]:
        many = len(rows) > _MANY
        self._asked += many
        if self._asked == _COMPILE_AFTER:
            self._fill = sharing.numba_fill()
        if many and self._fill is not sharing.fill:
            speeds = np.zeros(len(rows))
            capacity = self._costs.capacity_bytes_per_s
            self._fill(np.array(rows), *self._arrays, np.array(caps), capacity, self._load, speeds)
            return [float(speed) for speed in speeds]
        start, links, rates, capacity_list, load = self._lists
        found = [0.0] * len(rows)
        sharing.fill(rows, start, links, rates, caps, capacity_list, load, found)
        return found

    @cached_property
    def _lists(self) -> list[list[Any]]:
        """The arrays as lists, which interpreted code reads faster."""
        return [array.tolist() for array in (*self._arrays, self._costs.capacity_bytes_per_s, self._load)]
