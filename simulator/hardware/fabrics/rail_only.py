"""Rails without a spine: NIC k of every node ends in switch k, and nothing joins the switches.

Traffic to another rail first moves inside its node, over NVLink (Wang et al., arXiv 2307.12169, "Rail-only").
"""

from .plan import Fabric, FabricError, Kind, Plan, Rates


def _plan(fabric: Fabric, rates: Rates) -> Plan:
    if len(rates) > fabric.leaf_radix:
        allowed = f"a rail is one switch, which has no port for each of {len(rates)} nodes; use planes of leaf_spine"
        raise FabricError("leaf_radix", fabric.leaf_radix, allowed)
    return Plan(tuple(tuple(f"leaf{k}" for k in range(len(each))) for each in rates))


RAIL_ONLY = Kind(_plan, frozenset(("leaf_radix", "sharp")), lambda _: True)
