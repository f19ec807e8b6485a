"""Leaf switches, each with cables to real spine switches: two levels of Clos.

Every cable has the rate of a port, that of the fastest NIC. A leaf's ports that `oversubscription` leaves are uplinks,
as many to every spine; by default there is a spine for each uplink.
"""

from .plan import (
    Fabric,
    FabricError,
    Hop,
    Kind,
    Plan,
    Rates,
    both_ways,
    leaves_of,
    numbered,
    port_rate,
    sprays_without_loss,
)


def _plan(fabric: Fabric, rates: Rates) -> Plan:
    leaves = leaves_of(fabric.cabling, fabric.down_ports, [len(each) for each in rates])
    names = numbered(leaves)
    if len(names) < 2:
        return Plan(leaves)
    uplinks = fabric.leaf_radix - fabric.down_ports
    spines, radix = fabric.spines or uplinks, fabric.spine_radix or fabric.leaf_radix
    if uplinks < 1:
        raise FabricError("oversubscription", fabric.oversubscription, "leaves a leaf no port for an uplink")
    if uplinks % spines:
        raise FabricError("spines", spines, f"a leaf has {uplinks} uplinks; expected a number that divides them")
    if (needed := len(names) * (ports := uplinks // spines)) > radix:
        allowed = f"{len(names)} leaves need {needed} ports of a spine; use fewer nodes, more spines or fat_tree"
        raise FabricError("spine_radix", radix, allowed)
    rate = port_rate(rates)
    hops: list[Hop] = []
    for leaf in names:
        for spine in range(spines):
            hops += both_ways(leaf, f"spine{spine}", ports * rate, fabric, ports)
    return Plan(leaves, tuple(hops), dict.fromkeys(names, uplinks * rate))


_KEYS = frozenset(("oversubscription", "leaf_radix", "cabling", "spines", "spine_radix"))
LEAF_SPINE = Kind(_plan, _KEYS, sprays_without_loss)
