"""Broadcasts and gathers as streams round NCCL's ring, link by link: latencies, filling of the ring, bytes by rate.

A stack may say that its library broadcasts along trees between nodes, as Gloo does (`broadcast.tree`), a scenario by
which algorithm (`named`).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Floats
from ..collectives.rings import RingBroadcast, ring_broadcast, side_by_side
from ..collectives.trees import tree_broadcast
from ..profile import Parameter
from ..program import may_overlap
from .named import charge_broadcasts, is_named
from .pricing import Pricing, ends
from .sheet import Ops, Term

# Latency and bandwidth overlap in a long pipelined ring: adding them overstates a published 1,024-GPU all-reduce at
# 1 GB by up to 65 %, their p-norm with p about 4 follows it.
_PIPELINE_NORM = 4


def broadcasts(pricing: Pricing, ops: Ops) -> None:
    """Each round its ring, each message with a launch of its own.

    Where all broadcasts run one at a time, in one group, only links that ops beside them cross are watched.
    """
    groups = list(pricing.group_by_ranks(ops))
    beside = may_overlap(pricing.program, ops) if len(groups) == 1 else None
    only = np.ones(len(pricing.capacity), bool) if beside is None else pricing.sheet.busy_links(beside)
    for group, own in groups:
        if len(group) > 1:
            further = pricing.latency_of("broadcast.message_s", _messages(pricing, own))
            if is_named(pricing, "broadcast"):
                charge_broadcasts(pricing, own, group, [further], only)
                continue
            ring, at = ring_of(pricing, group), np.zeros(max(group) + 1, np.int64)
            at[list(group)] = ring.island_of
            latency = [pricing.latency_of("broadcast.latency_s"), further]
            if ring.islands > 1 and pricing.profile.value_or("broadcast.tree", 0.0):
                _pass_down(pricing, own, ring, group, latency)
                continue
            pass_round(pricing, own, ring, at[pricing.program.root[own]], pricing.bytes(own), latency, group, only)


def _pass_down(
    pricing: Pricing, ops: Ops, ring: RingBroadcast, group: tuple[int, ...], latency: Sequence[Term]
) -> None:
    """Charge broadcasts along trees over a group; each message on the way to the last rank is a hop of its own."""
    hop, wire_s = pricing.profile["broadcast.node_hop_s"], wires_s(pricing, ring)
    for root, own in pricing.group_by_root(ops):
        tree, size = tree_broadcast(pricing.cluster, group, root, pricing.capacity), pricing.bytes(own)
        kind = pricing.cluster.links[tree.slowest].kind
        share = pricing.sustain(tree.slowest, bytes=ends(size), **_features(ring, kind))
        filling = Term(tree.hops * (hop.value + wire_s), hop)
        before = [term.take(np.flatnonzero(np.isin(ops, own))) for term in latency]
        further = pricing.site_terms("broadcast", group)
        pricing.sheet.charge(own, [*before, filling, *further, Term(size * tree.s_per_byte, share, work=True)])
        shares = np.array(list(tree.shares.values()))
        pricing.sheet.demand(own, list(tree.shares), shares / tree.s_per_byte)


def _messages(pricing: Pricing, ops: Ops) -> np.ndarray:
    """Further messages than the first; an op without a shape is one message."""
    start = pricing.program.shape.start
    said = start[ops + 1] > start[ops]
    return np.where(said, pricing.shape(ops, 0), 1.0) - 1 if said.any() else np.zeros(len(ops))


_RING, _RINGS = RING_KINDS = "ring", "rings"
"""Kinds of values in a Memo; they depend on the cluster alone."""


def ring_of(pricing: Pricing, group: tuple[int, ...]) -> RingBroadcast:
    """The ring over a group."""
    return pricing.memo.get(_RING, (pricing.cluster, group), lambda: ring_broadcast(pricing.cluster, group))


def rings_of(pricing: Pricing, ranks: tuple[int, ...], each: int) -> RingBroadcast:
    """The rings over each `each` of the ranks, as one; all gather at the same time."""
    if each == len(ranks):
        return ring_of(pricing, ranks)
    groups = [ranks[first : first + each] for first in range(0, len(ranks), each)]
    return pricing.memo.get(
        _RINGS, (pricing.cluster, ranks, each), lambda: side_by_side([ring_of(pricing, group) for group in groups])
    )


def pass_round(
    pricing: Pricing,
    ops: Ops,
    ring: RingBroadcast,
    island: Ops,
    size: Floats,
    latency: Sequence[Term],
    ranks: Sequence[int],
    only: NDArray[np.bool_] | None = None,
) -> None:
    """Charge ops that send bytes round a ring over these ranks, from `island[op]`; launches are `latency`.

    `only` is a mask of the links worth watching, all of them if not given.
    """
    memories = np.array(pricing.hbm)[list(ranks)]
    bounds = [_through(pricing, memories, _in_ring(pricing, bound)) for bound in ring.bounds(pricing.capacity)]
    rate, slowest = np.array([rate for rate, _ in bounds]), np.array([link for _, link in bounds])
    for parameter, mine in pricing.group_by_parameter(slowest, island, size, lambda kind: _features(ring, kind)):
        seconds = size[mine] / rate[island[mine]]
        wire = Term(seconds, parameter, work=True)
        before = [term.take(mine) for term in latency]
        pricing.sheet.charge(ops[mine], [*before, _filling(pricing, ring, island[mine], seconds), wire])
    watched = np.ones(len(ring.link), bool) if only is None else only[ring.link]
    if watched.any():
        for here in np.unique(island).tolist():
            share = ring.shares_from(here)
            crossed = watched & (share > 0)
            pricing.sheet.demand(ops[island == here], ring.link[crossed], share[crossed] * rate[here])
    totals = np.bincount(island, size, minlength=ring.islands).astype(np.float64)
    pricing.sheet.carry(ring.link[~watched], ring.link_bytes(totals)[~watched])
    pricing.sheet.carry(memories, np.full(len(memories), 2 * float(size.sum())))


def _in_ring(pricing: Pricing, bound: tuple[float, int]) -> tuple[float, int]:
    """A ring's rate over links of a node other than NVLink, which copies may use better; as far as it was measured."""
    (rate, link), share = bound, pricing.profile.parameters.get("broadcast.link_fraction")
    if share is None or pricing.cluster.links[link].kind in ("nic", "nvlink", "leaf", "spine"):
        return bound
    return rate * min(share.value * pricing.cluster.capacity[link] / pricing.capacity[link], 1.0), link


def _through(pricing: Pricing, memories: Ops, bound: tuple[float, int]) -> tuple[float, int]:
    """A ring's rate and the link that bounds it: every byte is written where it arrives, and read to go on."""
    narrowest = int(memories[pricing.capacity[memories].argmin()])
    return min(bound, (float(pricing.capacity[narrowest]) / 2, narrowest), key=lambda one: one[0])


def _filling(pricing: Pricing, ring: RingBroadcast, island: Ops, seconds: Floats) -> Term:
    """Seconds that filling the ring adds to the transfer: the p-norm of both minus the transfer, as they overlap.

    The root of each transfer is in this island. What a signal takes from site to site overlaps with nothing.
    """
    inside, between = ring.hops()
    hop, node_hop = pricing.profile["broadcast.hop_s"], pricing.profile["broadcast.node_hop_s"]
    filling: Floats | float = inside * hop.value + between * (node_hop.value + wires_s(pricing, ring))
    filled = (seconds**_PIPELINE_NORM + filling**_PIPELINE_NORM) ** (1 / _PIPELINE_NORM)
    far = ring.site_latency_s[island] if ring.site_latency_s.any() else 0.0
    return Term(filled - seconds + far, _bounded_by(pricing, node_hop) if between else hop)


def wires_s(pricing: Pricing, ring: RingBroadcast) -> float:
    """Seconds of a message from island to island: on the cluster's wires, with what the network's numbers say."""
    message = pricing.profile.parameters.get("network.message_s")
    if message is None or ring.islands == 1:
        return ring.latency_s
    nic = pricing.cluster.nics_of(0)[0]
    ends = (
        pricing.cluster.links[link].latency_s for link in (pricing.cluster.nic_tx(nic), pricing.cluster.nic_rx(nic))
    )
    return ring.latency_s + message.value - sum(ends)


def _bounded_by(pricing: Pricing, step: Parameter) -> Parameter:
    """The parameter of a ring's step between islands: the message time if the network was not measured."""
    message = "network.message_s"
    return pricing.networks.parameters[message] if message in pricing.networks.differing else step


def _features(ring: RingBroadcast, kind: str) -> dict[str, int]:
    """The features of a ring, besides sizes, if this kind of link bounds it."""
    ranks, islands = len(ring.island_of), ring.islands
    return {"gpus": ranks, "nodes": islands} if kind == "nic" else {"gpus": max(ranks // islands, 2)}
