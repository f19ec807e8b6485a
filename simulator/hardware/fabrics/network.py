"""The network of a cluster: its links, and the shares of a transfer's bytes that its routing puts on them.

`hash`: every flow takes one of the equal routes, by a hash of the NICs at its ends and its number, as switches choose
among equal-cost paths (ECMP). `spray`: the bytes are split evenly over all of them. `adaptive`: flows come in order,
and each takes the route whose fullest link is then the least loaded; of equal ones, that of its hash.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..graph import Link, Route
from .build import KINDS, border_of, borders_of, build, plane_of
from .paths import Paths
from .plan import Fabric, Level, Rates

Shares = dict[int, float]
"""For each link, its bytes divided by those that are sent."""


class Transfer(NamedTuple):
    """Bytes from NIC `out` to NIC `into`, whose cables end in switches `src` and `dst`.

    `weight` is what it counts as load: its rate, as far as the others' compare with it.
    """

    src: str
    dst: str
    out: str
    into: str
    weight: float = 1.0


class Network:
    """What lies between the NICs of these nodes; links are numbered from 0."""

    def __init__(self, fabric: Fabric, rates: Rates):
        plan = build(fabric, rates)
        self.fabric, self.leaves, self.beyond = fabric, plan.leaves, plan.beyond
        self.hops, self._levels, self._borders = plan.hops, plan.levels, borders_of(fabric, len(rates))
        self.links = tuple(Link(hop.name, hop.kind, hop.bytes_per_s, hop.latency_s) for hop in plan.hops)

    @property
    def levels(self) -> Iterable[Level]:
        """All ways to part it of which one may be the narrowest; none where links are not alike."""
        return self._levels()

    @cached_property
    def _paths(self) -> Paths:
        return Paths(self.hops)

    @cached_property
    def _capacity(self) -> NDArray[np.float64]:
        return np.array([hop.bytes_per_s for hop in self.hops], np.float64)

    def same_plane(self, nic: int, other: int) -> bool:
        """Whether NICs of these numbers reach each other."""
        return plane_of(self.fabric, nic) == plane_of(self.fabric, other)

    def border_of(self, leaf: str) -> str:
        """The switch through which a leaf's site reaches others; empty if there is one site."""
        return border_of(self.fabric, leaf)

    def site_of(self, node: int) -> int:
        """The site of a node; sites have equal parts of the nodes, in order."""
        return node * max(len(self._borders), 1) // len(self.leaves)

    @cached_property
    def site_links(self) -> frozenset[int]:
        """The links between sites."""
        borders = set(self._borders)
        return frozenset(i for i, hop in enumerate(self.hops) if {hop.src, hop.dst} <= borders)

    @cached_property
    def site_latency_s(self) -> NDArray[np.float64]:
        """Seconds that links between sites add to a message from one site to another, shape `[sites, sites]`.

        With a link that is down, bytes may pass a third site. Sites that do not reach each other have 0.
        """
        ends = [[self.paths(a, b) for b in self._borders] for a in self._borders] or [[np.empty((0, 0), np.int32)]]
        latency_s = np.array([hop.latency_s for hop in self.hops], np.float64)
        return np.array([[latency_s[paths].sum(axis=1).max(initial=0.0) for paths in row] for row in ends])

    @property
    def is_even(self) -> bool:
        """Whether it slows no NIC, whatever they send, as long as none receives more than its rate."""
        fabric = self.fabric
        whole = not fabric.degraded and fabric.sites == 1
        return whole and KINDS[fabric.kind].is_even(fabric)

    def paths(self, src: str, dst: str) -> NDArray[np.int32]:
        """Every equal route from one switch to another, shape `[routes, links]`; of shape `[0, 0]` if there is none."""
        return self._paths.between(src, dst)

    def spread_evenly(self, dst: str, sent: Mapping[str, float]) -> NDArray[np.float64] | None:
        """The load of each link if bytes of many flows, by the switch that sends them, go to one; None without a route.

        All equal routes get the same. With adaptive routing a narrow link gets less: as much as its rate says.
        """
        numbers = self._paths.numbers
        if not numbers.keys() >= {dst, *sent}:
            return None
        from_each = np.zeros(len(numbers))
        from_each[[numbers[src] for src in sent]] = list(sent.values())
        widths = self._capacity if self.fabric.routing == "adaptive" else None
        return self._paths.spread_evenly(dst, from_each, widths)

    def route(self, src: str, dst: str, out: str, into: str, flow: int = 0) -> Route | None:
        """The route of a flow between NICs `out` and `into`, by its hash; None if there is none."""
        paths = self.paths(src, dst)
        return tuple(paths[self._choice(out, into, flow, len(paths))].tolist()) if len(paths) else None

    def spread(self, transfers: Iterable[Transfer]) -> list[Shares | None]:
        """The shares of transfers that are under way together, in order; None where there is no route."""
        load = np.zeros(len(self.links))
        return [self._shares(one, load) for one in transfers]

    def shares(self, transfer: Transfer, flow: int) -> Shares | None:
        """The shares of one of its flows, alone in the network."""
        return self._flow(transfer, flow, np.zeros(len(self.links)))

    def _shares(self, transfer: Transfer, load: NDArray[np.float64]) -> Shares | None:
        """The shares of all flows of a transfer, beside this load; with adaptive routing its own is added."""
        flows = 1 if self.fabric.routing == "spray" else self.fabric.flows
        found: Shares = {}
        for flow in range(flows):
            own = self._flow(transfer, flow, load)
            if own is None:
                return None
            for link, share in own.items():
                found[link] = found.get(link, 0.0) + share / flows
                if self.fabric.routing == "adaptive":
                    load[link] += transfer.weight * share / flows
        return found

    def _flow(self, transfer: Transfer, flow: int, load: NDArray[np.float64]) -> Shares | None:
        paths = self.paths(transfer.src, transfer.dst)
        if not len(paths):
            return None
        if self.fabric.routing == "spray":
            links, times = np.unique(paths, return_counts=True)
            return dict(zip(links.tolist(), (times / len(paths)).tolist(), strict=True))
        if self.fabric.routing == "adaptive" and paths.shape[1]:
            fullest = ((load[paths] + transfer.weight / self.fabric.flows) / self._capacity[paths]).max(axis=1)
            paths = paths[fullest == fullest.min()]
        chosen = self._choice(transfer.out, transfer.into, flow, len(paths))
        return dict.fromkeys(paths[chosen].tolist(), 1.0)

    def _choice(self, out: str, into: str, flow: int, among: int) -> int:
        """A number below `among` that depends on nothing but the flow and the seed."""
        if among == 1:
            return 0
        text = f"{self.fabric.hash_seed} {out} {into} {flow}"
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") % among
