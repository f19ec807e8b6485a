"""Every route of least cost between two switches, found when it is asked for.

Distances to a switch are found once; routes then follow links that come nearer by their cost, at each switch those of
the lowest order. Nothing here knows what kind of fabric it is, so routes also lead round links that are down.
"""

from collections.abc import Sequence

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from .plan import Hop

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]

_FAR = np.iinfo(np.int32).max // 2
_KEPT = 1024
"""Pairs of switches whose routes are kept; 16 kB each in the largest fat trees."""


class Paths:
    """Routes over the links between switches, by their numbers in `hops`."""

    def __init__(self, hops: Sequence[Hop]):
        self.numbers = {name: i for i, name in enumerate(dict.fromkeys(v for hop in hops for v in (hop.src, hop.dst)))}
        self._src = np.array([self.numbers[hop.src] for hop in hops], np.int32)
        self._dst = np.array([self.numbers[hop.dst] for hop in hops], np.int32)
        self._cost = np.array([hop.cost for hop in hops], np.int32)
        self._order = np.array([hop.order for hop in hops], np.int32)
        self._out = np.argsort(self._src, kind="stable").astype(np.int32)
        self._first = np.searchsorted(self._src[self._out], np.arange(len(self.numbers) + 1)).astype(np.int32)
        self._distances: LRUCache[int, Ints] = LRUCache(_KEPT)
        self._found: LRUCache[tuple[str, str], Ints] = LRUCache(_KEPT)

    def between(self, src: str, dst: str) -> Ints:
        """The links of every route of least cost from one switch to another, shape `[routes, links]`."""
        if (src, dst) not in self._found:
            self._found[src, dst] = self._search(src, dst)
        return self._found[src, dst]

    def spread_evenly(self, end: str, sent: Floats, widths: Floats | None = None) -> Floats | None:
        """The load of each link if what switches send to one of them is spread over all routes between.

        `sent` is by number of switch. All routes get the same; with the `widths` of links a switch gives each next link
        as much as that link and what follows it let through. None if there is no route for something that is sent.
        Routes are counted, not listed: those of a switch are those of the next ones together, so each link is looked at
        once.
        """
        to_end = self._distances_to(self.numbers[end])
        if (sent[to_end >= _FAR] > 0).any():
            return None
        waves = self._waves(to_end)
        routes, flow, load = np.zeros(len(self.numbers)), sent.copy(), np.zeros(len(self._src))
        routes[self.numbers[end]] = 1.0 if widths is None else np.inf
        by_link = np.zeros(len(self._src))
        for links in waves:
            beyond = routes[self._dst[links]]
            by_link[links] = beyond if widths is None else np.minimum(widths[links], beyond)
            np.add.at(routes, self._src[links], by_link[links])
        for links in reversed(waves):
            load[links] = flow[self._src[links]] * by_link[links] / routes[self._src[links]]
            np.add.at(flow, self._dst[links], load[links])
        return load

    def _waves(self, to_end: Ints) -> list[NDArray[np.int64]]:
        """The links on routes to the end, by the distance of where they begin, nearest first."""
        goes_on = (to_end < _FAR) & (np.diff(self._first) > 0)
        _, links = self._next(np.flatnonzero(goes_on).astype(np.int32), to_end)
        links = links[np.argsort(to_end[self._src[links]], kind="stable")]
        return np.split(links, np.flatnonzero(np.diff(to_end[self._src[links]])) + 1) if len(links) else []

    def _search(self, src: str, dst: str) -> Ints:
        if src == dst:
            return np.empty((1, 0), np.int32)
        if src not in self.numbers or dst not in self.numbers:
            return np.empty((0, 0), np.int32)
        start, end = self.numbers[src], self.numbers[dst]
        to_end = self._distances_to(end)
        at, routes = np.array([start], np.int32), np.empty((1, 0), np.int32)
        while to_end[start] < _FAR and (at != end).any():
            before, links = self._next(at, to_end)
            at, routes = self._dst[links], np.column_stack([routes[before], links])
        return routes if to_end[start] < _FAR else np.empty((0, 0), np.int32)

    def _next(self, at: Ints, to_end: Ints) -> tuple[NDArray[np.int64], Ints]:
        """For each place the links that come nearer to the end: (position in `at`, link)."""
        many = self._first[at + 1] - self._first[at]
        before = np.repeat(np.arange(len(at)), many)
        starts = np.cumsum(many) - many
        links = self._out[np.arange(len(before)) - np.repeat(starts - self._first[at], many)]
        nearer = to_end[self._dst[links]] + self._cost[links] == to_end[at[before]]
        order = np.where(nearer, self._order[links], _FAR)
        lowest = np.minimum.reduceat(order, starts)
        kept = nearer & (order == lowest[before])
        return before[kept], links[kept]

    def _distances_to(self, end: int) -> Ints:
        """The least cost from every switch to one, nearest first (Dijkstra's algorithm, all of one cost at once)."""
        if end not in self._distances:
            cost = np.full(len(self.numbers), _FAR, np.int32)
            cost[end], done = 0, -1
            while (left := cost[(cost > done) & (cost < _FAR)]).size:
                done = int(left.min())
                into = np.flatnonzero(cost[self._dst] == done)
                np.minimum.at(cost, self._src[into], done + self._cost[into])
            self._distances[end] = cost
        return self._distances[end]
