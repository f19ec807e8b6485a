"""Broadcasts over islands of unequal size, as from a trainer on a node of its own to engines on whole ones.

An algorithm takes every rank for an island, so that it is one of all ranks in their order; what each message takes
depends on where its two ranks really are. Times are those of the messages (`clock`), of a chain its closed form.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ...base.arrays import Floats, Ints
from ...base.errors import UserError
from ..machines import Machines
from .clock import Hop, Hops, end_s
from .hops import PIECES, ClusterNet, Formula
from .messages import Algorithm, HopKind, Pairs


def net_of(machines: Machines, ranks: Sequence[int], op: str, stage: Sequence[int] = ()) -> ClusterNet:
    """The hops between ranks, at the rate that links between switches leave if all of a stage send at once.

    Raises:
        UserError: islands of unequal size in other ops than broadcasts, or no way between ranks.
    """
    stages = dict.fromkeys(stage, tuple(stage))
    try:
        return ClusterNet(machines, ranks, op, stages).crowded()
    except UserError:
        if op != "broadcast":
            raise
        return UnevenNet(machines, ranks, op)


class UnevenNet(ClusterNet):
    """The hops of the ranks of a broadcast on islands of any size; `islands` counts its ranks."""

    def _shape(self, sizes: Sequence[int]) -> tuple[int, int]:
        self._homes = np.repeat(np.arange(len(sizes)), sizes)
        self._sizes = np.array(sizes)
        return sum(sizes), 1

    @property
    def period(self) -> int:
        """No rank is like any other."""
        return 0

    def is_inside(self, a: int, b: int) -> bool:
        """As `ClusterNet`."""
        return bool(self._homes[a] == self._homes[b])

    def _island_at(self, at: int) -> tuple[int, ...]:
        return tuple(self.ranks[i] for i in np.flatnonzero(self._homes == self._homes[at]).tolist())

    def pairs_between(self, a: int, b: int) -> list[tuple[int, int]]:
        """As `ClusterNet`; a rank of the smaller island has one of the other, at its own place of a node if it can."""
        ours, theirs = (np.flatnonzero(self._homes == self._homes[end]).tolist() for end in (a, b))
        if len(ours) > len(theirs):
            return [(there, here) for here, there in self._match(theirs, ours)]
        return self._match(ours, theirs)

    def _match(self, few: list[int], many: list[int]) -> list[tuple[int, int]]:
        left, found = dict.fromkeys(many), []
        for one in few:
            found.append((one, next((other for other in left if self._places[other] == self._places[one]), min(left))))
            del left[found[-1][1]]
        return found

    @cached_property
    def _places(self) -> list[int]:
        """The place of each rank on its node, which is its rail."""
        cluster = self._machines.cluster
        return [rank - cluster.gpus_of(cluster.node_of(rank))[0] for rank in self.ranks]

    @property
    def _unlike(self) -> tuple[int, ...]:
        """A rank of each kind of node on each size of island."""
        size_of = self._sizes[self._homes].tolist()
        alike = [tuple(rank for rank, own in zip(self.ranks, size_of, strict=True) if own == size)
                 for size in sorted(set(size_of))]  # fmt: skip
        return tuple(rank for ranks in alike for rank in self._machines.one_of_each(ranks))

    def _neighbour(self, at: int, inside: bool) -> int:
        home = self._homes[at]
        found = np.flatnonzero(self._homes == (home if inside else (home + 1) % len(self._sizes)))
        return int(found[found != at][:1].sum()) if len(found) > 1 else int(found[0])

    @cached_property
    def kinds(self) -> dict[HopKind, Hop]:
        """As `ClusterNet`; a striped hop has this rate times the ranks of the smaller island."""
        rail = self._wire.on(self._as_run(self._rail, self._share.value), self._wire.between_s)
        inside = self._wire.on(self._as_run(self._inside), self._wire.inside_s)
        return {"inside": inside, "rail": rail, "striped": rail}

    def hops(self, pairs: Pairs) -> Hops:
        """As `Net`; algorithms of broadcasts have no switches."""
        near, far = self.kinds["inside"], self.kinds["rail"]
        src, dst = self._homes[pairs.src], self._homes[pairs.dst]
        many = np.minimum(self._sizes[src], self._sizes[dst]) if pairs.striped else np.ones(len(src))
        inside = src == dst
        return Hops(
            np.where(inside, near.latency_s, far.latency_s + self._site_latencies_s(pairs)),
            np.where(inside, 1 / near.bytes_per_s, 1 / far.bytes_per_s / many) * pairs.ways,
            self._ports(pairs.src, inside, pairs.way),
            self._ports(pairs.dst, inside, pairs.way),
        )

    def formula(self, algorithm: Algorithm, size: float, root: int = 0, pieces: int | None = None) -> Formula:
        """As `ClusterNet`, without terms."""
        group, net = self.group(root), self.run_by(algorithm)
        assert isinstance(net, UnevenNet)
        if algorithm.pipelined:
            cuts = np.array(PIECES if pieces is None else [pieces])
            cuts = cuts[cuts <= max(size, 1)]
            seconds = net._chain_s(root, size, cuts)
            best = int(cuts[seconds.argmin()])
            both = float(seconds.min()), float(net._chain_s(root, 0.0, np.array([best]))[0])
            return Formula(self.group(root, best), [], *(self.launch_s + part for part in both))
        both_s = [end_s(algorithm.chunks(group), group, of, net) for of in (size, 0.0)]
        return Formula(group, [], *(self.launch_s + part for part in both_s))

    def _chain_s(self, root: int, size: float, pieces: Ints) -> Floats:
        """Of so many pieces the first takes each hop, the others follow it at the pace of the slowest."""
        order = (root + np.arange(len(self.ranks))) % len(self.ranks)
        hops = self.hops(Pairs(order[:-1], order[1:], striped=True))
        each = hops.latency_s[:, None] + size / pieces * hops.s_per_byte[:, None]
        return np.asarray(each.sum(axis=0) + (pieces - 1) * each.max(axis=0))
