"""Groups of routers, all to all inside a group, with a few global links from group to group.

Kim, Dally, Scott and Abts, ISCA 2008. Each of the `group_routers` (a) routers of a group has `global_links` (h) cables
to other groups; every two groups are joined by a h / (groups - 1) of them, rounded down. Nodes are dealt to routers
evenly, in order, and all NICs of a node end in one router. Routes are minimal: at most one global link, and a local one
before and behind it.
"""

from collections import Counter
from itertools import combinations

from .plan import Fabric, FabricError, Hop, Kind, Plan, Rates, across, port_rate

_GLOBAL = 16
"""What a global link costs a route, in local ones: more than the two that may go with it."""


def _plan(fabric: Fabric, rates: Rates) -> Plan:
    groups, a, h = fabric.groups, fabric.group_routers, fabric.global_links
    if len(rates) == 1:
        return Plan((("router0",) * len(rates[0]),))
    for key, value in (("groups", groups), ("group_routers", a)):
        if value < 1:
            raise FabricError(key, value, "expected at least 1: a dragonfly has groups, and routers in each")
    bundle = a * h // (groups - 1) if groups > 1 else 0
    if groups > 1 and not bundle:
        allowed = f"{a} routers have {a * h} global links, fewer than {groups - 1} other groups"
        raise FabricError("global_links", h, allowed)
    each = -(-len(rates) // (groups * a))
    leaves = tuple((f"router{node // each}",) * len(nics) for node, nics in enumerate(rates))
    rate, cables = port_rate(rates), _cables(groups, a, h, bundle)
    hops: list[Hop] = []
    for (one, other), ports in cables.items():
        cost = _GLOBAL if one // a != other // a else 1
        hops += [
            across(f"router{src}", f"router{dst}", ports * rate, fabric, ports, cost=cost)
            for src, dst in ((one, other), (other, one))
        ]
    local = rate * (a - 1) or rate * h
    beyond = min(local, bundle * (groups - 1) * rate / a) if groups > 1 else local
    names = [f"router{i}" for i in range(groups * a)]
    return Plan(leaves, tuple(hops), dict.fromkeys(names, beyond) if hops else {})


def _cables(groups: int, a: int, h: int, bundle: int) -> Counter[tuple[int, int]]:
    """How many cables join two routers; port i of a group leads to group i // bundle behind its own."""
    cables: Counter[tuple[int, int]] = Counter()
    for group in range(groups):
        cables.update((group * a + i, group * a + j) for i, j in combinations(range(a), 2))
    for one, other in combinations(range(groups), 2):
        for i in range(bundle):
            there = (other - one - 1) * bundle + i
            back = (one - other - 1 + groups) % groups * bundle + i
            cables[one * a + there // h, other * a + back // h] += 1
    return cables


DRAGONFLY = Kind(_plan, frozenset(("groups", "group_routers", "global_links")))
