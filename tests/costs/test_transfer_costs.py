"""Updates on clusters of the catalogue: no method beats the narrowest cut that its bytes must cross; folded equals not.

For every method this file says which bytes enter or leave which GPU, which node and which store. Links run at their
line rates and hosts take no time, so that nothing hides a byte that was forgotten.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.collectives import STREAMS
from runcast.simulator.costs import Costs, Store, cost
from runcast.simulator.engine import simulate
from runcast.simulator.hardware import Cluster, cluster
from runcast.simulator.profile import PARAMETERS, Parameter, Profile
from runcast.simulator.program import Program
from runcast.simulator.scenario import check_scenario
from runcast.simulator.systems.weight_update.lower import (
    Layout,
    TransferPlan,
    Transport,
    UpdatePlan,
    make_transfer,
    single_ranks,
)
from runcast.simulator.systems.weight_update.methods import FROM_TRAINERS, METHODS
from runcast.simulator.systems.weight_update.resolve import Resolved
from runcast.simulator.systems.weight_update.system import resolve

from ..examples import examples

GB = 10**9
SOME = examples(25)
SMALL_NODES = {"base": "h20-hgx", "gpus_per_node": 2, "nics": 2, "pcie_switches": 2}
MACHINES = {
    "dgx-h100": (("dgx-h100", 2), ("dgx-h100", 3)),
    "h20, nodes of 2": ((SMALL_NODES, 4),),
    "l40s": (("l40s-pcie", 2),),
    "gh200": (("gh200", 6),),
    "a100": (("dgx-a100", 2),),
}
MOE = {"preset": "moonlight-16b-a3b", "overrides": {"num_hidden_layers": 4, "n_routed_experts": 8}}
DENSE = {"preset": "llama3-8b", "overrides": {"num_hidden_layers": 4}}
IDEAL = Profile(
    "ideal",
    {
        name: Parameter(float(name.startswith(("link_fraction", "copy.hbm_fraction", "rdma.nic_f"))), 0.0, "exact", "-")
        for name in PARAMETERS
    },
)


@cache
def machine_of(name: str, which: int) -> Cluster:
    return cluster(*MACHINES[name][which])


# -- Random scenarios -------------------------------------------------------------------------------------------------


@st.composite
def models(draw: st.DrawFn) -> dict[str, object]:
    """Totals, or a cut-down preset, dense or of experts."""
    totals = {"bytes": draw(st.integers(1, 12)) * GB // 4, "tensors": draw(st.integers(4, 60))}
    return draw(st.sampled_from([totals, DENSE, MOE]))


@st.composite
def layouts(draw: st.DrawFn, gpus: int, experts: int) -> dict[str, int]:
    """Sizes that divide the GPUs, and the experts."""
    pp = draw(st.sampled_from([n for n in (1, 2, 4) if gpus % n == 0]))
    tp = draw(st.sampled_from([n for n in (1, 2, 4) if gpus // pp % n == 0]))
    ep = draw(st.sampled_from([n for n in (1, 2, 4, 8) if gpus // pp % n == 0 and n <= experts]))
    left = {"shard": gpus // pp // tp, "expert_shard": gpus // pp // ep}
    shards = {key: draw(st.sampled_from([n for n in (1, 2, 4, 8) if most % n == 0])) for key, most in left.items()}
    return {"gpus": gpus, "pp": pp, "tp": tp, "ep": ep} | draw(st.sampled_from([{}, shards]))


@st.composite
def from_trainers(draw: st.DrawFn, method: str) -> dict[str, object]:
    """A scenario whose update starts at trainers."""
    name = draw(st.sampled_from(list(MACHINES)))
    which = draw(st.integers(0, len(MACHINES[name]) - 1))
    gpus = machine_of(name, which).n_gpus
    trainers = gpus if method == "colocated" else draw(st.sampled_from([n for n in (1, 2, 4, 8, 16) if n < gpus]))
    receiving = trainers if method == "colocated" else draw(
        st.sampled_from([n for n in (1, 2, 4, 8, 16) if n <= gpus - trainers]))  # fmt: skip
    model = draw(models())
    powers, experts = [n for n in (1, 2, 4, 8) if receiving % n == 0], 1 if model is DENSE else 8
    spread = st.sampled_from([n for n in powers if n <= experts])
    inference = {"tp": draw(st.sampled_from(powers)), "ep": draw(spread)}
    update: dict[str, object] = {
        "method": method,
        "trainer": draw(layouts(trainers, experts)),
        "inference": inference if method == "colocated" else inference | {"gpus": receiving},
        "max_bucket": draw(st.integers(1, 32)) * 2**27,
        "in_flight": draw(st.integers(1, 4)),
    }
    if method == "file_system":
        update["storage"] = {"write": f"{draw(st.integers(1, 50))} GB/s", "read": f"{draw(st.integers(1, 50))} GB/s"}
    if method in ("stage_heads", "reshard", "colocated"):
        update["messages"] = draw(st.sampled_from(["tensor", "bucket"]))
    in_place = method in ("replica_writes", "static_writes")
    if not in_place and draw(st.booleans()):
        update["delta"] = {"density": draw(st.floats(0.01, 1.0))}
    if "bytes" not in model:  # which of its tensors become FP8 is not known
        update["quantize"] = draw(st.sampled_from(["none", "none", "before", "none" if in_place else "after"]))
    spec, nodes = MACHINES[name][which]
    return {"kind": "weight_update", "cluster": spec, "nodes": nodes, "model": model, "update": update}


@st.composite
def by_servers(draw: st.DrawFn, method: str, pipeline: str) -> dict[str, object]:
    """A scenario whose update starts at parameter servers beside the engines."""
    name = draw(st.sampled_from(list(MACHINES)))
    which = draw(st.integers(0, len(MACHINES[name]) - 1))
    spec, nodes = MACHINES[name][which]
    update = {"method": method, "pipeline": pipeline, "max_bucket": draw(st.integers(1, 32)) * 2**27}
    if pipeline == "three_stage":
        update["h2d_freed"] = draw(st.sampled_from(["start", "end"]))
    else:
        update["h2d_buffer"] = draw(st.booleans())
    if method == "p2p":
        update["ranks"] = draw(st.integers(1, machine_of(name, which).n_gpus))
    return {"kind": "weight_update", "cluster": spec, "nodes": nodes, "model": draw(models()), "update": update}


def resolved(table: dict[str, object]) -> Resolved:
    return resolve(check_scenario(table))


# -- Cuts -------------------------------------------------------------------------------------------------------------


@cache
def _ends(machine: Cluster) -> dict[tuple[str, str], float]:
    """Rate into and out of each vertex of a node over all its wires; device memory is no wire."""
    rates: dict[tuple[str, str], float] = {}
    for number, node in enumerate(machine.nodes):
        for wire in node.graph.wires:
            if wire.src != wire.dst:
                for way, end in (("in", f"n{number}.{wire.dst}"), ("out", f"n{number}.{wire.src}")):
                    rates[way, end] = rates.get((way, end), 0.0) + wire.link.bytes_per_s
    return rates


def gpu(machine: Cluster, rank: int, way: str) -> float:
    """All that can enter or leave a GPU, per second."""
    return _ends(machine)[way, machine.gpu(rank)]


def node(machine: Cluster, number: int, way: str) -> float:
    """All that can enter or leave a node through its NICs, per second."""
    end = {"in": machine.nic_rx, "out": machine.nic_tx}[way]
    return sum(float(machine.capacity[end(nic)]) for nic in machine.nics_of(number))


def nics(machine: Cluster, ranks: Iterable[int]) -> float:
    """What the NICs of these ranks send, per second."""
    found = {nic for rank in ranks for nic in machine.nics_of_gpu(rank)}
    return sum(float(machine.capacity[machine.nic_tx(nic)]) for nic in found)


def copied_in(machine: Cluster, rank: int) -> float:
    """Rate of copies from host memory: the narrowest link on the way."""
    return float(machine.capacity[list(machine.h2d_route(rank))].min())


def of_stages(plan: TransferPlan) -> list[tuple[int, float]]:
    """Of each stage: bytes of all its buckets, and what a receiver keeps of them."""
    found = []
    for stage in plan.stages:
        sizes = [(bucket.bytes, bucket.phase.kept_bytes) for bucket in plan.buckets if bucket.stage == stage]
        found.append((sum(size for size, _ in sizes), sum(size * kept for size, kept in sizes)))
    return found


Bounds = dict[str, float]
Senders = Callable[[tuple[int, ...]], tuple[int, ...]]


def bounds(plan: TransferPlan, machine: Cluster, method: str, store: Store | None) -> Bounds:
    """Seconds that no run can beat, by what bounds it."""
    return {**gathered(plan, machine, method), **_BOUNDS[method](plan, machine, store)}


def gathered(plan: TransferPlan, machine: Cluster, method: str) -> Bounds:
    """Each rank of a group gets from the others what they hold; several groups may share the work."""
    found = {}
    for stage in plan.stages:
        others = 0.0
        for bucket in plan.buckets:
            ranks, size = bucket.phase.mesh.size, bucket.bytes * plan.transport.gathered * (bucket.stage == stage)
            groups = len(stage.ranks) // ranks if method == "static_writes" else 1
            others += (1 - 1 / ranks) * size / groups
        found |= {f"gathered by {stage.head}": 0.999 * others / gpu(machine, stage.head, "in")}
    return {} if method == "reshard" else found


def _apart(plan: TransferPlan, machine: Cluster) -> dict[int, list[int]]:
    """Receivers by node, of nodes without trainers: their bytes come through NICs."""
    training = {machine.node_of(rank) for rank in plan.trainers}
    nodes: dict[int, list[int]] = {}
    for rank in plan.receivers:
        if machine.node_of(rank) not in training:
            nodes.setdefault(machine.node_of(rank), []).append(rank)
    return nodes


def _all_receive_all(plan: TransferPlan, machine: Cluster, senders: Senders) -> Bounds:
    """Every receiver gets all bytes; a node gets them once.

    They leave the nodes of a stage's senders through the senders' NICs, or those of receivers there that pass them on.
    """
    sent = plan.transport.share * plan.total_bytes
    apart = _apart(plan, machine)
    found = {f"into gpu {rank}": sent / gpu(machine, rank, "in") for rank in plan.receivers}
    found |= {f"into node {n}": sent / node(machine, n, "in") for n in apart}
    if apart:
        for stage, (size, _) in zip(plan.stages, of_stages(plan), strict=True):
            own = senders(stage.ranks)
            near = [r for r in plan.receivers if machine.node_of(r) in {machine.node_of(rank) for rank in own}]
            found[f"from {stage.head}"] = plan.transport.share * size / nics(machine, [*own, *near])
    return found


def _one(plan: TransferPlan, machine: Cluster, _: Store | None) -> Bounds:
    return _all_receive_all(plan, machine, lambda ranks: ranks[:1])


def _all(plan: TransferPlan, machine: Cluster, _: Store | None) -> Bounds:
    return _all_receive_all(plan, machine, lambda ranks: ranks)


def _striped(plan: TransferPlan, machine: Cluster, store: Store | None) -> Bounds:
    """A ring inside a node asks (m - 1)/m of each port, an average over roots: two that meet there may pass as one."""
    apart = {rank for receivers in _apart(plan, machine).values() for rank in receivers}
    unsure = {f"into gpu {rank}" for rank in plan.receivers if rank not in apart}
    return {name: limit for name, limit in _all(plan, machine, store).items() if name not in unsure}


def _kept(plan: TransferPlan, machine: Cluster, _: Store | None = None) -> Bounds:
    """Every receiver gets what it keeps; all of that enters its node, and leaves the ranks of its stage."""
    share = plan.transport.share
    apart = _apart(plan, machine)
    found = {f"into gpu {rank}": share * plan.kept_bytes / gpu(machine, rank, "in") for rank in plan.receivers}
    found |= {f"into node {n}": len(of) * share * plan.kept_bytes / node(machine, n, "in") for n, of in apart.items()}
    for stage, (_, kept) in zip(plan.stages, of_stages(plan), strict=True):
        sent = share * kept * sum(map(len, apart.values()))
        found[f"from {stage.ranks}"] = sent / nics(machine, stage.ranks)
    return found


def _kept_through_nics(plan: TransferPlan, machine: Cluster, _: Store | None = None) -> Bounds:
    """The same; one-sided writes cross NICs also inside a node."""
    share, found = plan.transport.share, _kept(plan, machine)
    nearest: dict[str, int] = {}
    for rank in plan.receivers:
        nearest[machine.nic_of(rank)] = nearest.get(machine.nic_of(rank), 0) + 1
    received = share * plan.kept_bytes
    return found | {f"into {n}": k * received / machine.capacity[machine.nic_rx(n)] for n, k in nearest.items()}


def _static(plan: TransferPlan, machine: Cluster, _: Store | None) -> Bounds:
    """Before that, each rank of a stage copies its share from host memory."""
    found = _kept_through_nics(plan, machine)
    for stage, (size, _) in zip(plan.stages, of_stages(plan), strict=True):
        share = size * plan.transport.gathered / len(stage.ranks)
        found |= {f"copied by {rank}": share / copied_in(machine, rank) for rank in stage.ranks}
    return found


def _chain(plan: TransferPlan, machine: Cluster, _: Store | None) -> Bounds:
    """All bytes enter every rank, from a neighbour without NVLink by its NIC; the head of a stage sends those of it."""
    sent = plan.transport.share * plan.total_bytes
    found = {f"into gpu {rank}": sent / gpu(machine, rank, "in") for rank in plan.receivers}
    for source, target in pairwise(plan.receivers):
        if target not in machine.nvlink_domain(source):
            found[f"from {source}"] = sent / nics(machine, (source,))
            found[f"into {target}"] = sent / machine.capacity[machine.nic_rx(machine.nic_of(target))]
    for stage, (size, _) in zip(plan.stages, of_stages(plan), strict=True):
        if plan.receivers[0] not in machine.nvlink_domain(stage.head):
            found[f"from {stage.head}"] = plan.transport.share * size / nics(machine, (stage.head,))
    return found


def _colocated(plan: TransferPlan, machine: Cluster, _: Store | None) -> Bounds:
    """Each GPU reads and writes what it keeps; what other stages hold must enter it."""
    found = {f"memory of {r}": 2 * plan.kept_bytes / machine.capacity[machine.hbm(r)] for r in plan.receivers}
    for stage, (_, kept) in zip(plan.stages, of_stages(plan), strict=True):
        elsewhere = plan.kept_bytes - kept
        found |= {f"from other stages to {r}": elsewhere / gpu(machine, r, "in") for r in stage.ranks}
    return found


def _stored(plan: TransferPlan, _: Cluster, store: Store | None) -> Bounds:
    """S / B_write + I S / B_read."""
    assert store is not None
    sent = plan.transport.share * plan.total_bytes
    return {"store": sent / store.write_bytes_per_s + plan.engines * sent / store.read_bytes_per_s}


_BOUNDS: dict[str, Callable[[TransferPlan, Cluster, Store | None], Bounds]] = {
    "single_sender": _one,
    "relays": _all,
    "all_senders": _striped,
    "stage_heads": _one,
    "replica_writes": _kept_through_nics,
    "static_writes": _static,
    "reshard": _kept,
    "chain": _chain,
    "colocated": _colocated,
    "file_system": _stored,
}


def of_servers(plan: UpdatePlan, machine: Cluster, method: str, listed: int) -> Bounds:
    """Every rank gets all but what it owns, every node what its ranks do not own.

    Owners copy their own from host memory; in P2P mode the listed ranks read all through NICs.
    """
    owned, total = plan.buckets.owned_bytes(plan.ranks), plan.total_bytes
    if method == "p2p":
        nodes = {machine.node_of(rank) for rank in range(listed)}
        found = {f"into gpu {rank}": total / gpu(machine, rank, "in") for rank in range(listed)}
        return found | {"read": total / sum(node(machine, n, "in") for n in nodes)}
    found = {f"into gpu {r}": (total - owned[r]) / gpu(machine, r, "in") for r in range(plan.ranks)}
    found |= {f"copied by {r}": owned[r] / copied_in(machine, r) for r in range(plan.ranks)}
    for n in range(machine.n_nodes):
        found[f"into node {n}"] = (total - owned[list(machine.gpus_of(n))].sum()) / node(machine, n, "in")
    return found


@pytest.mark.parametrize("method", FROM_TRAINERS)
@SOME
@given(data=st.data())
def test_no_update_from_trainers_beats_its_narrowest_cut(method, data):
    """That it ends at all says that nothing waits in a circle."""
    one = resolved(data.draw(from_trainers(method)))
    assert isinstance(one.plan, TransferPlan)
    storage = one.scenario.update.storage
    store = None if storage is None else Store(storage.write, storage.read)
    limits = bounds(one.plan, one.cluster, method, store)
    makespan = simulate(one.program, cost(one.program, one.cluster, IDEAL, STREAMS, store=store)).makespan_s
    assert {name: limit for name, limit in limits.items() if makespan < limit * (1 - 1e-6)} == {}


PIPELINES = [
    ("broadcast", "two_stage"), ("broadcast", "serial"), ("broadcast", "three_stage"), ("p2p", "two_stage"),
    ("p2p", "serial"), ("p2p", "three_stage"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "pipeline"), PIPELINES)
@SOME
@given(data=st.data())
def test_no_update_by_servers_beats_its_narrowest_cut(method, pipeline, data):
    one = resolved(data.draw(by_servers(method, pipeline)))
    assert isinstance(one.plan, UpdatePlan)
    limits = of_servers(one.plan, one.cluster, method, one.n_listed)
    makespan = simulate(one.program, cost(one.program, one.cluster, IDEAL, STREAMS)).makespan_s
    assert {name: limit for name, limit in limits.items() if makespan < limit * (1 - 1e-6)} == {}


# -- Folding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", FROM_TRAINERS)
@SOME
@given(data=st.data())
def test_folded_is_unfolded(method, data):
    """Also where stages, heads and slow nodes make ranks unlike."""
    table = data.draw(from_trainers(method))
    table["slow"] = data.draw(st.sampled_from([(), [{"node": 0, "factor": 2.0}], [{"node": 1, "factor": 1.5}]]))
    times = [
        simulate(one.program, one.costs).makespan_s for one in (resolved(table), resolved(table | {"fold": False}))
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


# -- What single ops take ---------------------------------------------------------------------------------------------

SHARE = 0.25


def ideal(
    method: str,
    machine: Cluster,
    trainers: int,
    receivers: int,
    *,
    store: Store | None = None,
    inference: Layout = Layout(),  # noqa: B008
    transport: Transport = Transport(load=False),  # noqa: B008
    buckets: int = 8,
    train: Layout | None = None,
    expert: bool = False,
) -> tuple[Program, Costs]:
    """Equal buckets of 1 GB, sharded over all trainers by default; hosts take no time, links run at line rate."""
    last = receivers if method == "colocated" else trainers + receivers
    plan = make_transfer(
        np.full(buckets, GB), np.full(buckets, expert), np.full(buckets, -1), trainers=range(trainers),
        receivers=range(last - receivers, last), train=train or Layout(shard=trainers, expert_shard=trainers),
        inference=inference, bucket_bytes=GB, classes=single_ranks(last), transport=transport,
        apart=method == "static_writes",
    )  # fmt: skip
    program = METHODS[method].program(plan)
    return program, cost(program, machine, IDEAL, STREAMS, store=store)


def seconds_of(program: Program, costs: Costs, kind: str) -> float:
    """All ops of a kind, each alone."""
    return float(costs.uncontended_s[program.is_kind(kind)].sum())


def wire_s(method: str, machine: Cluster, trainers: int, receivers: int) -> float:
    """All broadcasts together, where gathers take no time."""
    program, costs = ideal(method, machine, trainers, receivers)
    work = np.where(program.is_kind("gather"), 0.0, costs.work_s)
    return simulate(program, replace(costs, work_s=work)).makespan_s


@pytest.mark.parametrize("senders", [1, 2, 4, 8])
def test_all_senders_add_up_until_the_receivers_nic_is_full(senders):
    """max(S / nB, S / B_rx): senders of 25 GB/s, a receiver of 100 GB/s."""
    fat = {"base": "gh200", "nic": "800 Gb/s", "nodes": 1}
    machine = cluster({"mix": [{"base": "gh200", "nodes": senders}, fat]}, senders + 1)
    receiving = min(machine.capacity[list(machine.nic_in_route(senders, machine.nic_of(senders)))].min(), 100e9)
    assert wire_s("all_senders", machine, senders, 1) == pytest.approx(8 * GB / min(senders * 25e9, receiving), rel=0.1)


@pytest.mark.parametrize("senders", [2, 4])
def test_all_senders_into_a_nic_like_theirs_gain_nothing(senders):
    machine = cluster("gh200", senders + 1)
    assert wire_s("all_senders", machine, senders, 1) == pytest.approx(8 * GB / 25e9, rel=0.01)


def test_all_senders_of_a_node_use_all_nics_of_another():
    assert wire_s("all_senders", cluster("dgx-h100", 2), 8, 8) == pytest.approx(8 * GB / 400e9, rel=0.1)


def test_relays_use_the_nics_of_the_senders_peers():
    """DGX H100: one sender has one NIC of 50 GB/s; with its seven peers all eight carry."""
    machine = cluster("dgx-h100", 2)
    times = [wire_s(method, machine, 8, 8) for method in ("single_sender", "relays")]
    assert times == pytest.approx([8 * GB / 50e9, 8 * GB / 400e9], rel=1e-3)


def test_writes_of_several_pairs_share_the_links_that_they_cross():
    """GH200: four receivers in nodes of their own from one source of 25 GB/s, or from four."""
    machine = cluster("gh200", 8)
    layout = Layout(tp=4)
    one, four = (ideal("static_writes", machine, n, 4, inference=layout) for n in (1, 4))
    kept = 8 * GB * SHARE
    assert [seconds_of(*one, "write"), seconds_of(*four, "write")] == pytest.approx([4 * kept / 25e9, kept / 25e9])


TWO_NODES = cluster("dgx-h100", 3)  # two of trainers, one of engines
GATHERS = {
    "all ranks, in a ring through all NICs": (Layout(shard=16), False, 8 * GB * 15 / 16 / 400e9),
    "a node each, over NVLink": (Layout(shard=8), False, 4 * GB * 7 / 8 / 450e9),
    "two halves of each node": (Layout(shard=4), False, 2 * GB * 3 / 4 / 450e9),
    "experts across nodes, each mesh through its NIC": (Layout(ep=8, expert_shard=2), True, GB / 2 / 50e9),
    "experts of one rank": (Layout(ep=16), True, 0.0),
}


@pytest.mark.parametrize(("train", "expert", "seconds"), GATHERS.values(), ids=GATHERS)
def test_meshes_gather_at_the_same_time_each_over_its_own_links(train, expert, seconds):
    """Eight tensors of 1 GB on 16 trainers: m meshes gather 8/m of them each."""
    priced = ideal("static_writes", TWO_NODES, 16, 8, train=train, expert=expert)
    assert seconds_of(*priced, "gather") == pytest.approx(seconds)


def test_meshes_that_share_nics_share_what_these_take():
    """Four NICs for the eight GPUs of a node: two meshes on each."""
    machine = cluster({"base": "dgx-h100", "nics": 4}, 3)
    priced = ideal("static_writes", machine, 16, 8, train=Layout(ep=8, expert_shard=2), expert=True)
    assert seconds_of(*priced, "gather") == pytest.approx(GB / 2 / 25e9)


def test_a_gather_of_several_meshes_puts_their_bytes_on_the_links_of_all():
    """Each of 16 ranks gets the other half of 1 GB through its own NIC, and sends its own half."""
    program, costs = ideal("static_writes", TWO_NODES, 16, 8, train=Layout(ep=8, expert_shard=2), expert=True)
    (op,) = np.flatnonzero(program.is_kind("gather"))
    links, rates = costs.demand_of(op)
    carried = dict(zip(links.tolist(), (rates * costs.work_s[op]).tolist(), strict=True))
    nics = [TWO_NODES.nic_of(rank) for rank in range(16)]
    ends = [end(nic) for nic in nics for end in (TWO_NODES.nic_tx, TWO_NODES.nic_rx)]
    assert {link: carried[link] for link in ends} == pytest.approx(dict.fromkeys(ends, GB / 2))


def test_a_write_from_a_replica_crosses_host_memory_and_not_the_source_device():
    machine = cluster("dgx-h100", 2)
    program, costs = ideal("replica_writes", machine, 8, 8)
    crossed = {
        machine.links[link].name for op in np.flatnonzero(program.is_kind("write")) for link in costs.demand_of(op)[0]
    }
    kinds = {
        machine.links[link].kind for op in np.flatnonzero(program.is_kind("write")) for link in costs.demand_of(op)[0]
    }
    assert ("host_memory" in kinds, "nic" in kinds, "hbm" in kinds) == (True, True, False)
    assert not any(name.startswith("n0.gpu") for name in crossed)


def test_an_exchange_inside_a_node_goes_over_nvlink_and_between_nodes_through_nics():
    near = ideal("reshard", cluster("dgx-h100", 1), 4, 4)
    far = ideal("reshard", cluster("dgx-h100", 2), 8, 8)
    times = [seconds_of(*priced, "exchange") for priced in (near, far)]
    assert times == pytest.approx([8 * GB / 450e9, 8 * GB / 50e9])


def test_a_store_is_written_once_and_read_by_every_engine():
    """S / B_write + I S / B_read, exactly: one trainer gathers nothing, and nobody loads."""
    store = Store(20e9, 50e9)
    program, costs = ideal("file_system", cluster("dgx-h100", 1), 1, 6, store=store, inference=Layout(tp=2))
    assert simulate(program, costs).makespan_s == pytest.approx(8 * GB / 20e9 + 3 * 8 * GB / 50e9, rel=1e-12)
    assert costs.link_names[-2:] == ("store<", "store>")
    assert costs.link_bytes[-2:] == pytest.approx([8 * GB, 24 * GB])


def test_a_gather_brings_each_rank_what_the_others_hold():
    program, costs = ideal("single_sender", cluster("dgx-h100", 2), 8, 8)
    assert seconds_of(program, costs, "gather") == pytest.approx(8 * GB * 7 / 8 / 450e9)


@pytest.mark.parametrize("method", ["single_sender", "replica_writes", "reshard", "chain", "file_system"])
def test_a_delta_puts_its_share_on_the_wire(method):
    kinds = ("broadcast", "write", "exchange", "fs_write", "fs_read")
    payloads = Transport(load=False), Transport(share=SHARE, delta=True, load=False)
    sizes = []
    for payload in payloads:
        program, _ = ideal(method, cluster("dgx-h100", 2), 8, 8, transport=payload, store=Store(1e9, 1e9))
        sizes.append(sum(int(program.bytes[program.is_kind(kind)].sum()) for kind in kinds if kind in program.kinds))
    assert sizes[1] == SHARE * sizes[0]


PASSES = [
    ("quantize", Transport(quantize="before", load=False), 1.5),
    ("encode", Transport(delta=True, load=False), 3.0),
]


@pytest.mark.parametrize(("kind", "payload", "traffic"), PASSES, ids=[kind for kind, _, _ in PASSES])
def test_a_pass_moves_its_traffic_through_device_memory(kind, payload, traffic):
    machine = cluster("dgx-h100", 2)
    program, costs = ideal("single_sender", machine, 8, 8, transport=payload)
    assert seconds_of(program, costs, kind) == pytest.approx(traffic * 8 * GB / machine.capacity[machine.hbm(0)])


def test_passes_before_and_after_the_wire_launch_for_each_tensor():
    """Four tensors in a bucket; flattening is one launch."""
    profile = Profile("p", IDEAL.parameters | {"elementwise.tensor_s": Parameter(0.25, 0.0, "exact", "-")})
    plan = make_transfer(
        np.full(4, 256), np.zeros(4, bool), np.full(4, -1), trainers=[0], receivers=[1], train=Layout(),
        inference=Layout(), bucket_bytes=4 * 256, classes=single_ranks(2),
        transport=Transport(quantize="before", delta=True),
    )  # fmt: skip
    program = METHODS["single_sender"].program(plan)
    costs = cost(program, cluster("dgx-h100", 1), profile, STREAMS)
    assert [seconds_of(program, costs, kind) for kind in ("quantize", "encode", "apply")] == pytest.approx([1.0] * 3)


def test_reshard_passes_over_shards_as_nothing_is_gathered():
    machine, payload = cluster("dgx-h100", 2), Transport(quantize="before", delta=True, gathered=2.0, load=False)
    program, costs = ideal("reshard", machine, 8, 8, transport=payload)
    memory = machine.capacity[machine.hbm(0)]
    assert seconds_of(program, costs, "quantize") == pytest.approx(1.5 * 2 * GB / memory)
    assert seconds_of(program, costs, "encode") == pytest.approx(3 * GB / memory)


@pytest.mark.parametrize("method", FROM_TRAINERS)
@pytest.mark.parametrize("name", ["dgx-h100", "l40s-pcie", "gb200-nvl72"])
def test_no_op_asks_more_of_a_link_than_there_is(method, name):
    machine = cluster(name, 2)
    half = machine.n_gpus // 2
    program, costs = ideal(method, machine, half, half, store=Store(20e9, 30e9), transport=Transport(delta=True))
    for op in range(len(program)):
        links, rates = costs.demand_of(op)
        assert (rates <= costs.capacity_bytes_per_s[links] * (1 + 1e-9)).all(), program.names[op]


@pytest.mark.parametrize("method", FROM_TRAINERS)
def test_a_run_is_never_faster_than_the_busiest_link(method):
    program, costs = ideal(method, cluster("dgx-h100", 2), 8, 8, store=Store(20e9, 30e9), inference=Layout(tp=4))
    assert simulate(program, costs).makespan_s >= (costs.link_bytes / costs.capacity_bytes_per_s).max() * (1 - 1e-9)


def test_further_messages_of_an_exchange_take_their_time():
    """One message is paid for by the latency, a bucket of four tensors has three more."""
    profile = Profile("p", IDEAL.parameters | {"broadcast.message_s": Parameter(0.25, 0.0, "exact", "-")})
    plan = make_transfer(
        np.full(4, GB), np.zeros(4, bool), np.full(4, -1), trainers=[0], receivers=[1], train=Layout(),
        inference=Layout(), bucket_bytes=4 * GB, classes=single_ranks(2), transport=Transport(messages="tensor"),
    )  # fmt: skip
    program = METHODS["reshard"].program(plan)
    costs = cost(program, cluster("dgx-h100", 1), profile, STREAMS)
    assert seconds_of(program, costs, "exchange") == pytest.approx(3 * 0.25 + 4 * GB / 450e9)


def test_ties_between_ops_do_not_depend_on_folding():
    """Two stages of two trainers whose broadcasts could start at once; folded, they once started in another order."""
    table = {
        "kind": "weight_update", "cluster": "gh200", "nodes": 6, "slow": ({"node": 1, "factor": 1.5},),
        "model": {"preset": "llama3-8b", "overrides": {"num_hidden_layers": 4}},
        "update": {"method": "all_senders", "trainer": {"gpus": 4, "pp": 2}, "inference": {"gpus": 1},
                   "max_bucket": 2**27, "in_flight": 1},
    }  # fmt: skip
    folded, unfolded = (resolved(table | {"fold": fold}) for fold in (True, False))
    assert simulate(folded.program, folded.costs).makespan_s == simulate(unfolded.program, unfolded.costs).makespan_s
