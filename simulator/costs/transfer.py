"""Cost models of what trainers add to an update: gathering, replicas, one-sided writes, elementwise passes, a store.

A gather is host work per tensor (names, conversion, launches) and an all-gather's ring; a replica is host work per
tensor and slow copies into host memory, by the byte; writes of several pairs at once share the links that they cross.
"""

from collections.abc import Sequence

import numpy as np

from ..collectives.wires import nic_route, peer_route, write_route
from ..hardware import Cluster
from .named import charge_gathers, is_named
from .pricing import Pricing
from .ring import pass_round, rings_of
from .sheet import Ops, Term


def gather(pricing: Pricing, ops: Ops) -> None:
    """All-gather in each group: a launch for each tensor of which a rank holds a part, then names and slices of all.

    Several groups gather their parts at the same time and share the links that they have in common. Shape is (tensors,
    ranks of a group, tensors of which a rank holds a part).
    """
    for ranks, own in pricing.group_by_ranks(ops):
        for size in np.unique(pricing.shape(own, 1)).astype(int).tolist():
            mine = own[pricing.shape(own, 1) == size]
            launches = pricing.host("export.tensor_s", pricing.shape(mine, 2))
            host = [pricing.host("export.s"), launches, pricing.host("convert.tensor_s", pricing.shape(mine, 0))]
            if size == 1:
                pricing.sheet.charge(mine, host)
                continue
            if is_named(pricing, "all_gather"):
                charge_gathers(pricing, mine, ranks, size, host)
                continue
            received, latency = pricing.bytes(mine) * (1 - 1 / size), [*host, pricing.latency_of("broadcast.latency_s")]
            ring, first = rings_of(pricing, ranks, size), np.zeros(len(mine), np.int64)
            pass_round(pricing, mine, ring, first, received, latency, ranks)


def replicate(pricing: Pricing, ops: Ops) -> None:
    """The loader copies what is kept into host memory, tensor by tensor; pieces of experts go slower."""
    kept, expert, size = pricing.shape(ops, 1), pricing.shape(ops, 2) > 0, pricing.bytes(ops)
    pricing.sheet.charge(
        ops,
        [
            pricing.host("replica.tensor_s", kept),
            pricing.host("replica.byte_s", size * ~expert),
            pricing.host("replica.expert_byte_s", size * expert),
        ],
    )


def write(pricing: Pricing, ops: Ops) -> None:
    """One-sided, between the pairs of the group. Shape is (messages, whether from host memory)."""
    basis = {"nic": pricing.one_sided_nic}
    for group, own in pricing.group_by_ranks(ops):
        pairs = list(zip(group[::2], group[1::2], strict=True))
        for host in (False, True):
            mine = own[(pricing.shape(own, 1) > 0) == host]
            if len(mine):
                routes = [write_route(pricing.cluster, a, b, from_host=host) for a, b in pairs]
                latency = [pricing.latency_of("rdma.latency_s")]
                pricing.route(mine, routes, latency, pricing.machines.one_sided, basis)


def forward(pricing: Pricing, ops: Ops) -> None:
    """One-sided from device to device, as UCX does it: over NVLink inside a node."""
    known = pricing.profile.parameters
    basis = {"nic": pricing.one_sided_nic, "nvlink": known.get("copy.p2p_fraction") or known["link_fraction.nvlink"]}
    for (source, target), own in pricing.group_by_ranks(ops):
        route = peer_route(pricing.cluster, source, target)
        pricing.route(own, [route], [pricing.latency_of("rdma.latency_s")], pricing.machines.one_sided, basis)


def pairs(pricing: Pricing, ops: Ops) -> None:
    """NCCL send and receive between the pairs of the group: over NVLink where there is one."""
    for group, own in pricing.group_by_ranks(ops):
        cluster = pricing.cluster
        routes = [peer_route(cluster, a, b) for a, b in zip(group[::2], group[1::2], strict=True)]
        messages = pricing.shape(own, 0) - 1
        latency = [pricing.latency_of("broadcast.latency_s"), pricing.latency_of("broadcast.message_s", messages)]
        basis = {
            "nic": pricing.networks.nic_share(pricing.profile["link_fraction.nic"]),
            "nvlink": pricing.profile["link_fraction.nvlink"],
        }
        pricing.route(own, routes, latency, pricing.capacity, basis)


def stage_in(pricing: Pricing, ops: Ops) -> None:
    """All ranks of a stage copy their shares from host memory at once."""
    for group, own in pricing.group_by_ranks(ops):
        routes = [dict.fromkeys(pricing.cluster.h2d_route(rank), 1.0) for rank in group]
        pricing.route(own, routes, [pricing.latency_of("h2d.latency_s")], pricing.capacity, {})


def elementwise(pricing: Pricing, ops: Ops) -> None:
    """An elementwise pass through device memory, at the rate of its own kernel where that was measured."""
    kind = pricing.kind(ops)
    moved = pricing.pass_term(kind.traffic * pricing.bytes(ops), f"memory.{kind.own or kind.name}")
    launches = [pricing.host("elementwise.tensor_s", pricing.shape(ops, 0))] if kind.per_tensor else []
    pricing.sheet.charge(ops, [*launches, moved])


def cross_store(read: bool, pricing: Pricing, ops: Ops) -> None:
    """Through the store, or as slowly as NICs and links between sites let through; all engines read at once.

    The first rank of the group is where the store is; the others, each with an equal part, write or read. What a
    scenario states is exact.
    """
    assert pricing.store is not None
    store = len(pricing.capacity) - (1 if read else 2)
    for (home, *ranks), own in pricing.group_by_ranks(ops):
        shares = {store: 1.0, **_store_wires(pricing.cluster, home, ranks, read)}
        links, share = list(shares), np.array(list(shares.values()))
        per_byte = share / pricing.capacity[links]
        slowest, size = links[int(per_byte.argmax())], pricing.bytes(own)
        moved = size * (pricing.shape(own, 0) if read else 1.0)
        basis = pricing.profile["store.s" if slowest == store else "link_fraction.nic"]
        work = Term(moved * float(per_byte.max()), basis, work=True)
        pricing.sheet.charge(
            own, [pricing.latency_of("store.s"), *pricing.site_terms("broadcast", (home, *ranks)), work]
        )
        pricing.sheet.demand(own, links, share / float(per_byte.max()))


def _store_wires(cluster: Cluster, home: int, ranks: Sequence[int], read: bool) -> dict[int, float]:
    """The shares of the bytes on the ranks' own NICs, and on links to the site of `home`; nothing without NICs."""
    found: dict[int, float] = {}
    if not cluster.nics_of(cluster.node_of(home)):
        return found
    beside = cluster.nic_of(home)
    for rank in ranks:
        nic = cluster.nic_of(rank)
        route = nic_route(cluster, beside, nic) if read else nic_route(cluster, nic, beside)
        own = cluster.nic_rx(nic) if read else cluster.nic_tx(nic)
        for link in {own, *(cluster.site_links & route.keys())}:
            found[link] = found.get(link, 0.0) + (1.0 if link == own else route[link]) / len(ranks)
    return found
