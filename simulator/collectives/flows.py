"""The share of the NICs' rate that links between switches leave, by the route of every flow of a stage.

All groups of a stage send at the same time. A ring sends from each island to the next one, an all-to-all to all others
at once, by the NIC of the receiver's rail (NCCL's PXN) or directly by the sender's own. The flows of a message or a
ring are spread as the fabric routes them, so some may collide; an all-to-all has so many that they count as even over
all equal routes. The slowest flow decides, as the others wait for it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Floats, Ints
from ..hardware import Cluster
from ..hardware.fabrics.plan import Level

Pair = tuple[int, int]
_Ends = tuple[str, str]
_Nics = Callable[[Cluster, int, int], Iterator[_Ends]]
ALL_TO_ALLS = ("all_to_all", "direct")

_MOST_STEPS = 20_000_000
"""Leaves times links for which the bytes of an all-to-all are followed; of more, the levels of whole fabrics count.

Measured on one core: a torus of 32 x 32 (4.2 million) takes 2 s, a fat tree of 64 leaves (half a million) 0.05 s.
"""


def share_by_flows(cluster: Cluster, kind: str, groups: Sequence[Sequence[int]], nearby: int) -> float:
    """The share of the NICs' rate that groups keep which send together; `nearby` is the number of ranks of an island.

    The groups of `send_recv` are pairs; `direct` is an all-to-all by the senders' own NICs, `messages` such pairs.
    """
    if kind in ALL_TO_ALLS:
        return _all_to_all(cluster, groups, kind == "direct")
    if kind in ("send_recv", "messages"):
        pairs = [(group[0], group[-1]) for group in groups]
        return _along(cluster, [pairs], own_nics) if kind == "messages" else _along(cluster, [[one] for one in pairs])
    rings = [[(a, group[(i + nearby) % len(group)]) for i, a in enumerate(group)] for group in groups]
    return _along(cluster, rings)


def tiles(group: Sequence[int], stage: Sequence[int]) -> list[tuple[int, ...]]:
    """A stage cut into groups of the shape of one, from its first rank on; ranks that are left over do not send."""
    steps, left, found = [rank - group[0] for rank in group], set(stage), []
    for first in sorted(stage):
        if first in left and left.issuperset(one := tuple(first + step for step in steps)):
            found.append(one)
            left.difference_update(one)
    return found or [tuple(group)]


def _along(cluster: Cluster, groups: Sequence[Sequence[Pair]], nics: _Nics | None = None) -> float:
    """The share that is left if the first rank of each pair sends to the other; pairs of a group send equal bytes."""
    flows = [
        [list((nics or _rail_nics)(cluster, a, b)) for a, b in pairs if cluster.island(a) != cluster.island(b)]
        for pairs in groups
    ]
    rates, load = _rates(cluster, flows), np.zeros(len(cluster.capacity))
    for rate, shares in zip(rates.values(), cluster.spread(list(rates)), strict=True):
        for link, share in shares.items():
            load[link] += share * rate
    return _left(cluster, load[cluster.node_links :])


def _rates(cluster: Cluster, groups: Sequence[Sequence[Sequence[_Ends]]]) -> dict[_Ends, float]:
    """Bytes/s from NIC to NIC of the flows of each pair: its NICs' own, and those of the slowest pair of its group."""
    every = [ends for pairs in groups for pair in pairs for ends in pair]
    sent, received = Counter(out for out, _ in every), Counter(into for _, into in every)

    def line(ends: _Ends) -> float:
        tx, rx = (float(cluster.capacity[link]) for link in (cluster.nic_tx(ends[0]), cluster.nic_rx(ends[1])))
        return min(tx / sent[ends[0]], rx / received[ends[1]])

    found = defaultdict[_Ends, float](float)
    for pairs in groups:
        lines = [[line(ends) for ends in pair] for pair in pairs]
        slowest = min(map(sum, lines), default=0.0)
        for pair, own in zip(pairs, lines, strict=True):
            for ends, rate in zip(pair, own, strict=True):
                found[ends] += rate * slowest / sum(own)
    return found


def own_nics(cluster: Cluster, a: int, b: int) -> Iterator[tuple[str, str]]:
    """The NICs between which one rank sends to another: all of the receiver's, and its own on their planes."""
    own = cluster.nics_of_gpu(a)
    for k, into in enumerate(cluster.nics_of_gpu(b)):
        out = cluster.nic_towards(a, into)
        yield (own[k % len(own)] if out == own[0] else out), into


def _rail_nics(cluster: Cluster, a: int, b: int) -> Iterator[tuple[str, str]]:
    """The NICs between which one rank sends to another: in both nodes those of the receiver's rails."""
    home = cluster.node_of(a)
    here = set(cluster.nics_of(home))
    own = cluster.nics_of_gpu(a)
    for k, into in enumerate(cluster.nics_of_gpu(b)):
        same_rail = f"n{home}.{into.partition('.')[2]}"
        yield same_rail if same_rail in here else _nic_to(cluster, a, own[k % len(own)], into), into


def _nic_to(cluster: Cluster, rank: int, own: str, into: str) -> str:
    """The NIC by which a rank whose node has not the receiver's rail sends: its own, if that is on the same plane."""
    numbers = (int(nic.partition(".nic")[2]) for nic in (own, into))
    return own if cluster.network.same_plane(*numbers) else cluster.nic_towards(rank, into)


def _left(cluster: Cluster, load: NDArray[np.float64]) -> float:
    """The share of its load, in bytes/s, that the fullest link between switches carries; at most 1."""
    capacity = cluster.capacity[cluster.node_links :]
    busy = load > 0
    return float(min(1.0, (capacity[busy] / load[busy]).min(initial=1.0)))


def _all_to_all(cluster: Cluster, groups: Sequence[Sequence[int]], direct: bool) -> float:
    """The share that is left if every rank sends equally to all ranks of its group on other islands."""
    sent = _between_leaves(cluster, groups, direct)
    steps = int(sent.rate.any(axis=0).sum()) * len(cluster.network.links)
    levels = list(cluster.network.levels) if steps > _MOST_STEPS else []
    return _by_level(cluster, levels, sent) if levels else _left(cluster, _evenly(cluster, sent))


class _Sent(NamedTuple):
    """Bytes/s from one switch to another: `rate[i, j]` from the i-th to the j-th of these names."""

    names: list[str]
    rate: Floats


def _between_leaves(cluster: Cluster, groups: Sequence[Sequence[int]], direct: bool) -> _Sent:
    """What an all-to-all of each group sends from one leaf to another, through all NICs of its ranks."""
    nodes = cluster.network.leaves
    number = {leaf: i for i, leaf in enumerate(dict.fromkeys(leaf for leaves in nodes for leaf in leaves))}
    most, many = max(map(len, nodes)), len(number)
    leaf_at = np.array([[number[leaves[k % len(leaves)]] for k in range(most)] for leaves in nodes])
    beyond = [group for group in groups if len({cluster.island(rank) for rank in group}) > 1]
    users = Counter(nic for group in beyond for rank in group for nic in cluster.nics_of_gpu(rank))
    total = np.zeros(many * many)
    for group in beyond:
        for src, dst, rate in _pairs_of_leaves(cluster, group, users, leaf_at, direct):
            total += np.bincount(src * many + dst, rate, minlength=many * many)
    return _Sent(list(number), total.reshape(many, many))


def _pairs_of_leaves(
    cluster: Cluster, group: Sequence[int], users: Mapping[str, int], leaf_at: Ints, direct: bool
) -> Iterator[tuple[Ints, Ints, Floats]]:
    """(source leaf, destination leaf, bytes/s) of every two ranks of an all-to-all, for each NIC of the receiver.

    A NIC's rate is split evenly over its `users`, and a rank's over its receivers and their NICs. Ranks send equal
    bytes, so none is faster than the slowest. `leaf_at` has the number of each leaf by node and NIC.
    """
    nics = [cluster.nics_of_gpu(rank) for rank in group]
    node = np.array([cluster.node_of(rank) for rank in group])
    island = np.array([cluster.island(rank) for rank in group])
    far = island[:, None] != island[None, :]
    rate = np.array([sum(float(cluster.capacity[cluster.nic_tx(nic)]) / users[nic] for nic in own) for own in nics])
    each = (rate.min() / far.sum(axis=1))[:, None] / np.array([len(own) for own in nics])
    for k in range(max(map(len, nics))):
        there = far & np.array([k < len(own) for own in nics])
        rail = np.array([int(own[k % len(own)].partition(".nic")[2]) for own in nics])
        out_by = np.where(_on_one_plane(cluster, rail), rail[:, None], rail) if direct else rail
        src = leaf_at[node[:, None], out_by]
        src, dst = np.broadcast_to(src, far.shape), np.broadcast_to(leaf_at[node, rail], far.shape)
        out = there & (src != dst)
        yield src[out], dst[out], each[out]


def _on_one_plane(cluster: Cluster, nics: Ints) -> NDArray[np.bool_]:
    """Whether NICs of these numbers reach each other; a rank sends to others by the NIC of the receiver's rail."""
    known = sorted(set(nics.tolist()))
    reach = np.array([[cluster.network.same_plane(a, b) for b in known] for a in known])
    at = np.searchsorted(known, nics)
    return reach[at[:, None], at]


def _evenly(cluster: Cluster, sent: _Sent) -> NDArray[np.float64]:
    """The load of every link if bytes from switch to switch are spread over all equal routes."""
    load, names = np.zeros(len(cluster.network.links)), sent.names
    for dst, rates in zip(names, sent.rate.T, strict=True):
        senders = {names[i]: float(rates[i]) for i in np.flatnonzero(rates).tolist()}
        found = cluster.network.spread_evenly(dst, senders) if senders else 0.0
        if found is None:
            src = next(src for src in senders if not len(cluster.network.paths(src, dst)))
            raise cluster.no_route(src, dst)
        load += found
    return load


def _by_level(cluster: Cluster, levels: Sequence[Level], sent: _Sent) -> float:
    """The share that the narrowest level leaves of what passes it, and links between sites do."""
    homes = [cluster.network.border_of(leaf) for leaf in sent.names]
    borders = list(dict.fromkeys(homes))
    there = np.array(homes) == np.array(borders)[:, None]
    across = there @ sent.rate @ there.T
    np.fill_diagonal(across, 0.0)
    least = min(_left_by(level, sent) for level in levels)
    return min(least, _left(cluster, _evenly(cluster, _Sent(borders, across))))


def _left_by(level: Level, sent: _Sent) -> float:
    """The share that the links of a level leave of what leaves or reaches a part of it; other sites have their own."""
    parts = {part: i for i, part in enumerate(level.bytes_per_s)}
    part = np.array([parts[level.part[leaf]] if leaf in level.part else -1 for leaf in sent.names])
    here, capacity = part >= 0, np.array(list(level.bytes_per_s.values()))
    passing = np.where(here & here[:, None] & (part != part[:, None]), sent.rate, 0.0)
    load = [np.bincount(part[here], passing.sum(axis=axis)[here], minlength=len(parts)) for axis in (0, 1)]
    return float(1 / max(1.0, (np.array(load) / capacity).max()))
