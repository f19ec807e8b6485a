"""The fabric and the store of a pool, which jobs share: how fast each job goes on.

A job moves bytes at a rate on average when it runs alone, its demand. Where demands exceed the capacity of a link,
rates are max-min fair: each job gets its demand, or the same as the others that do not (Bertsekas and Gallager, Data
Networks, 1992, section 6.5.2). A job goes on at its rate / its demand, the lowest of its links. What it then leaves
unused on the other link is not given to others. Jobs of equal demands always go on alike, so they are a group.
"""

from collections.abc import Iterator
from math import inf

from simpy import Environment, Event

from ..links import FairLink, Group, Transfer, fair_share

Demand = tuple[float, float]
"""Bytes per second of a job on the fabric and on the store."""


class PoolLinks(FairLink):
    """A fabric and a store of these capacities. Groups move seconds of work; the next end is in SimPy's queue."""

    def __init__(self, env: Environment, fabric_bytes_per_s: float, store_bytes_per_s: float):
        super().__init__(env)
        self._capacities = fabric_bytes_per_s, store_bytes_per_s
        self._by_demand: dict[Demand, Group] = {}
        self._wake: Event | None = None  # when the next work ends

    def start(self, seconds: float, demand: Demand) -> Transfer:
        """Begin work that takes so many seconds for a job that runs alone on links without limits."""
        self._by_demand = {of: group for of, group in self._by_demand.items() if group.ends}
        group = self._by_demand.setdefault(demand, Group())
        self._groups = list(self._by_demand.values())
        return self.begin(group, seconds)

    def _rates(self) -> Iterator[float]:
        jobs = [(demand, len(group.ends)) for demand, group in self._by_demand.items()]
        fabric, store = (
            fair_share(capacity, ((demand[link], many) for demand, many in jobs if demand[link] and many))
            for link, capacity in enumerate(self._capacities)
        )
        for (on_fabric, on_store), _ in jobs:
            yield min(1.0, *(share / asked for share, asked in ((fabric, on_fabric), (store, on_store)) if asked))

    def _share(self, now_s: float) -> float:
        next_s = super()._share(now_s)
        if next_s < inf:
            self._wake = self._env.timeout(max(next_s, 0.0))
            self._wake.callbacks.append(self._end)
        return next_s

    def _end(self, wake: Event) -> None:
        if wake is self._wake:  # else rates have changed since
            self.end_transfers(self._env.now)
