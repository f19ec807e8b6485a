"""Cost models of the ops of a weight update, one function per kind: what it takes alone and which links it loads.

Forms: copies and broadcasts are latency + bytes / rate (Hockney), the rate being that of the slowest link on the way;
a reload is host work per tensor and the bytes kept through device memory; other host work is constants and counts.
Every number comes from the profile and the stack. What starts at trainers is in `transfer`, broadcasts in `ring`.
"""

import numpy as np

from ..collectives.wires import read_route
from .named import agreement, is_named
from .pricing import Pricing
from .ring import ring_of, wires_s
from .sheet import Ops, Term

_HEARD = {"wait_worker": "send_recv", "barrier": "all_reduce"}
"""Host work in which ranks hear from each other, and the exchange whose messages are as many, one after the other."""


def host_work(pricing: Pricing, ops: Ops) -> None:
    """The parameters of a kind that is nothing but work of host threads; without any it takes no time.

    Ranks that hear from others at another site wait for the links there.
    """
    kind = pricing.kind(ops)
    counts = {name: 1.0 if entry is None else pricing.shape(ops, entry) for name, entry in kind.work.items()}
    terms = [pricing.host(name, count) for name, count in counts.items()]
    if kind.name in _HEARD:
        terms += pricing.site_terms_each(_HEARD[kind.name], [pricing.program.ranks_of(int(op)) for op in ops])
    if terms:
        pricing.sheet.charge(ops, terms)


def gather_metas(pricing: Pricing, ops: Ops) -> None:
    """All ranks tell each other of every tensor; between nodes each of them takes longer."""
    for ranks, own in pricing.group_by_ranks(ops):
        tensors, nodes = pricing.shape(own, 0), len({pricing.cluster.node_of(rank) for rank in ranks})
        between = pricing.host("gather.node_tensor_s", tensors * (nodes > 1))
        latency = pricing.site_terms("all_gather", ranks)
        pricing.sheet.charge(own, [pricing.host("gather.tensor_s", tensors), between, *latency])


def register(pricing: Pricing, ops: Ops) -> None:
    """Landing buffers become known to the NIC, or are forgotten, by the byte."""
    kind, size = pricing.kind(ops).name, pricing.bytes(ops)
    pricing.sheet.charge(ops, [pricing.host(f"{kind}.s"), pricing.host(f"{kind}.byte_s", size)])


def allocate(pricing: Pricing, ops: Ops) -> None:
    """Planning the buckets tensor by tensor, then device memory by the byte."""
    planning = pricing.host("allocate.tensor_s", pricing.shape(ops, 0))
    pricing.sheet.charge(ops, [planning, pricing.host("allocate.byte_s", pricing.bytes(ops))])


def post_hook(pricing: Pricing, ops: Ops) -> None:
    """Charge the engine's post-processing of loaded weights, which depends on their precision."""
    (dtype,) = {pricing.program.dtypes[dtype] for dtype in pricing.program.dtype[ops]}
    pricing.sheet.charge(ops, [pricing.host("post_hook.fp8_s" if dtype == "fp8" else "post_hook.bf16_s")])


def agree(pricing: Pricing, ops: Ops) -> None:
    """A tree of small messages: up and down once per doubling of the number of islands."""
    for group, own in pricing.group_by_ranks(ops):
        if len(group) > 1 and is_named(pricing, "all_reduce"):
            pricing.sheet.charge(own, agreement(pricing, group, float(pricing.bytes(own)[0])))
            continue
        ring = ring_of(pricing, group)
        doublings = float(np.log2(ring.islands))
        wires = Term(2 * doublings * wires_s(pricing, ring), pricing.profile["agree.doubling_s"])
        terms = [pricing.latency_of("agree.latency_s"), pricing.latency_of("agree.doubling_s", doublings), wires]
        pricing.sheet.charge(own, [*terms, *pricing.site_terms("all_reduce", group)])


def host_copy(pricing: Pricing, ops: Ops) -> None:
    """The owner's route from its nearest host memory, or to there; its slowest link gives the rate.

    Both directions take the profile's numbers for host-to-device copies, on their own route; copies to the host a
    share of their rate, where the profile has measured it.
    """
    kind = pricing.kind(ops).name
    _copy_in(pricing, ops, kind)


def _copy_in(pricing: Pricing, ops: Ops, kind: str = "h2d") -> None:
    """Charge copies between the device of an op's root and its nearest host memory."""
    ranks = np.unique(pricing.program.root[ops])
    routes = [(*pricing.host_route(kind, rank), pricing.hbm[rank]) for rank in ranks.tolist()]
    lengths = np.array([len(route) for route in routes])
    for length in np.unique(lengths):
        mine = ranks[lengths == length]
        own = ops[np.isin(pricing.program.root[ops], mine)]
        alike = [route for route in routes if len(route) == length]
        pricing.route_own(own, mine, alike, [pricing.latency_of("h2d.latency_s")], pricing.copy_share(kind))


def read(pricing: Pricing, ops: Ops) -> None:
    """RDMA from the owner's host memory to the receiver's device; the shape holds the owner.

    A read asks before it gets, so it crosses from site to site twice.

    What a rank owns itself loops through its NIC, unless the software copies it in memory (`read.in_memory`).
    """
    owners = pricing.shape(ops, 0).astype(np.int64)
    basis = {"nic": pricing.one_sided_nic}
    if pricing.profile.value_or("read.in_memory", 0.0):
        at_home = owners == pricing.program.root[ops]
        if at_home.any():
            _copy_in(pricing, ops[at_home])
        ops, owners = ops[~at_home], owners[~at_home]
    for root, own in pricing.group_by_root(ops):
        for owner in np.unique(owners[np.isin(ops, own)]).tolist():
            mine = own[np.isin(own, ops[owners == owner])]
            route = {**read_route(pricing.cluster, owner, root), pricing.hbm[root]: 1.0}
            start = [pricing.latency_of("rdma.latency_s")]
            pricing.route(mine, [route], start, pricing.machines.one_sided, basis, trips=2)


def device_copy(pricing: Pricing, ops: Ops) -> None:
    """Charge copies on the owner's device, which read and write every byte in device memory."""
    fraction = pricing.profile["copy.hbm_fraction"]
    ranks, which = np.unique(pricing.program.root[ops], return_inverse=True)
    memory = np.array(pricing.hbm)[ranks]
    traffic = fraction.value * pricing.cluster.capacity[memory]
    pricing.sheet.charge(ops, [Term(2.0 * pricing.bytes(ops) / traffic[which], fraction, work=True)])
    pricing.sheet.demand_each(ops, which, memory[:, None], traffic[:, None])


def reload(pricing: Pricing, ops: Ops) -> None:
    """Host work on every tensor, and between it the bytes kept, read and written once.

    These copies are short and far between: their bytes are counted, but they ask too little to be watched.
    """
    kept, hbm = pricing.shape(ops, 1), pricing.hbm
    host = [pricing.host("reload.s"), pricing.host("reload.tensor_s", pricing.shape(ops, 0))]
    pricing.sheet.charge(ops, [*host, pricing.memory_term(2 * kept, "reload.hbm_fraction")])
    total = float((2 * kept * pricing.ranks_at(ops)).sum())
    pricing.sheet.carry(np.array(hbm), np.full(len(hbm), total / len(hbm)))
