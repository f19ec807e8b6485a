"""Leaf switches, each with cables to real spine switches: two levels of Clos.

Every cable has the rate of a port, that of the fastest NIC. A leaf's ports that `oversubscription` leaves are uplinks,
as many to every spine; by default there is a spine for each uplink.
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
    plan_of_leaves,
    sprays_without_loss,
    uplinks,
)


def _plan(fabric: Fabric, rates: Rates) -> Plan:
    return plan_of_leaves(fabric, rates, _spines)


def _spines(fabric: Fabric, leaves: Sequence[str], rate: float) -> tuple[list[Hop], float, list[Level]]:
    cables = fabric.leaf_radix - fabric.down_ports
    spines, radix = fabric.spines or cables, fabric.spine_radix or fabric.leaf_radix
    if cables < 1:
        raise FabricError("oversubscription", fabric.oversubscription, "leaves a leaf no port for an uplink")
    if cables % spines:
        raise FabricError("spines", spines, f"a leaf has {cables} uplinks; expected a number that divides them")
    if (needed := len(leaves) * (ports := cables // spines)) > radix:
        allowed = f"{len(leaves)} leaves need {needed} ports of a spine; use fewer nodes, more spines or fat_tree"
        raise FabricError("spine_radix", radix, allowed)
    hops: list[Hop] = []
    for leaf in leaves:
        for spine in range(spines):
            hops += both_ways(leaf, f"spine{spine}", ports * rate, fabric, ports)
    return hops, cables * rate, [uplinks(dict.fromkeys(leaves, cables * rate))]


_KEYS = frozenset(("oversubscription", "leaf_radix", "cabling", "spines", "spine_radix", "sharp"))
LEAF_SPINE = Kind(_plan, _KEYS, sprays_without_loss)
