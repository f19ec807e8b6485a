"""A fat tree of three levels: leaves and aggregation switches in pods, and core switches that join the pods.

Al-Fares, Loukissas and Vahdat, SIGCOMM 2008: of switches with k ports, k pods of (k/2)^2 NICs hang under (k/2)^2 cores,
and aggregation switch j of every pod is cabled to cores j k/2 .. (j + 1) k/2 - 1. `oversubscription` is that of leaves,
`core_oversubscription` that of aggregation switches; both change how many of the k ports face down. Pods are built as
far as there are NICs, cores all.
"""

from collections.abc import Sequence

from .plan import (
    Fabric,
    FabricError,
    Hop,
    Kind,
    Level,
    Plan,
    Rates,
    both_ways,
    down_ports,
    plan_of_leaves,
    sprays_without_loss,
    uplinks,
)


def _plan(fabric: Fabric, rates: Rates) -> Plan:
    return plan_of_leaves(fabric, rates, _pods)


def _pods(fabric: Fabric, leaves: Sequence[str], rate: float) -> tuple[list[Hop], float, list[Level]]:
    k = fabric.leaf_radix
    leaves_of_pod = down_ports(k, fabric.core_oversubscription)
    aggs, cores = k - fabric.down_ports, k - leaves_of_pod  # uplinks of a leaf, of an aggregation switch
    for key, ports in (("oversubscription", aggs), ("core_oversubscription", cores)):
        if ports < 1:
            raise FabricError(key, getattr(fabric, key), f"leaves a switch of {k} ports none for an uplink")
    pod_of = {leaf: int(leaf.removeprefix("leaf")) // leaves_of_pod for leaf in leaves}
    pods = pod_of[leaves[-1]] + 1
    if pods > k:
        most = k * leaves_of_pod * fabric.down_ports
        raise FabricError("leaf_radix", k, f"{pods} pods are more than the ports of a core: at most {most} NICs fit")
    hops: list[Hop] = []
    for leaf, pod in pod_of.items():
        for j in range(aggs):
            hops += both_ways(leaf, f"agg{pod * aggs + j}", rate, fabric)
    for agg in range(pods * aggs if pods > 1 else 0):
        for i in range(cores):
            hops += both_ways(f"agg{agg}", f"core{agg % aggs * cores + i}", rate, fabric)
    above = aggs * cores * rate / leaves_of_pod if pods > 1 else aggs * rate
    names = {leaf: f"pod{pod}" for leaf, pod in pod_of.items()}
    levels = [
        uplinks(dict.fromkeys(leaves, aggs * rate)),
        Level(names, dict.fromkeys(names.values(), aggs * cores * rate)),
    ]
    return hops, min(aggs * rate, above), levels


_KEYS = frozenset(("oversubscription", "leaf_radix", "cabling", "core_oversubscription", "sharp"))
FAT_TREE = Kind(_plan, _KEYS, sprays_without_loss)
