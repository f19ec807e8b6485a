"""The plan of a whole fabric: its kind's, once for each plane and site, joined, less what is down.

A plane is a network of its own: NIC k of every node is on plane k mod `planes`. A site has an equal part of the nodes,
in order. Every leaf is cabled to the border of its site by a link that holds all of its NICs, and every two borders are
joined by one of `site_bytes_per_s` each way; routes leave a site only where they must.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations

from .dragonfly import DRAGONFLY
from .fat_tree import FAT_TREE
from .ideal import LEAF, RAIL, SINGLE
from .leaf_spine import LEAF_SPINE
from .plan import Fabric, FabricError, Hop, Kind, Leaves, Level, Levels, Plan, Rates, across, both_ways, no_levels
from .rail_only import RAIL_ONLY
from .torus import MESH, TORUS

KINDS: dict[str, Kind] = {
    "rail": RAIL,
    "leaf": LEAF,
    "single": SINGLE,
    "rail_only": RAIL_ONLY,
    "leaf_spine": LEAF_SPINE,
    "fat_tree": FAT_TREE,
    "torus": TORUS,
    "mesh": MESH,
    "dragonfly": DRAGONFLY,
}
"""Every kind of fabric by the name that a file gives it."""

IDEAL = ("rail", "leaf", "single")
"""Kinds in which no two flows collide by chance."""

_ADDING = ("infiniband", "")
"""Kinds of network whose switches may add what NICs send (SHARP); of the last one nothing is known."""

_BORDER_COST = 1000
"""What the way to a border costs a route, in other links: more than any way inside a site."""


def build(fabric: Fabric, rates: Rates) -> Plan:
    """Cable nodes together; `rates[node][k]` is NIC k's bytes/s in each direction.

    Raises:
        FabricError: a key does not go with the nodes or with another key.
    """
    check_keys(fabric)
    return _degraded(fabric, _sites(fabric, rates))


def check_keys(fabric: Fabric) -> None:
    """Check the keys that only some kinds have.

    Raises:
        FabricError: a key says something that its kind has not.
    """
    usual = Fabric(fabric.kind)
    for key in dict.fromkeys(key for kind in KINDS.values() for key in sorted(kind.keys)):
        value = getattr(fabric, key)
        if key != "leaf_radix" and key not in KINDS[fabric.kind].keys and value != getattr(usual, key):
            having = ", ".join(name for name, kind in KINDS.items() if key in kind.keys)
            shown = list(value) if isinstance(value, tuple) else value
            raise FabricError(key, shown, f'fabric "{fabric.kind}" has none; {having} have it')
    if fabric.sharp and not has_sharp(fabric.kind, fabric.network):
        raise FabricError("sharp", True, f'network "{fabric.network}" has none; {_ADDING[0]} has it')
    if fabric.sites > 1 and not fabric.site_bytes_per_s:
        raise FabricError("sites", fabric.sites, "needs site_bandwidth, the rate between two sites")
    if fabric.sites == 1 and (fabric.site_bytes_per_s or fabric.site_latency_s):
        raise FabricError("sites", fabric.sites, "expected at least 2 with site_bandwidth or site_latency")


def has_sharp(kind: str, network: str) -> bool:
    """Whether a kind of fabric on a kind of network may have switches that add.

    SHARP is InfiniBand's, and no tree of its switches spans a torus, a mesh or a dragonfly of single routers (NVIDIA
    SHARP manual, "Setting up NVIDIA SHARP Environment": fat trees, Dragonfly+ and hypercubes).
    """
    return "sharp" in KINDS[kind].keys and network in _ADDING


def plane_of(fabric: Fabric, nic: int) -> int:
    """The plane of a node's NIC; NICs on different planes do not reach each other."""
    return nic if fabric.kind == "rail_only" else nic % fabric.planes


def border_of(fabric: Fabric, leaf: str) -> str:
    """The switch through which a leaf's site reaches others; empty if there is one site."""
    return _border(leaf.partition("-")[0]) if fabric.sites > 1 else ""


def borders_of(fabric: Fabric, nodes: int) -> list[str]:
    """The border of each site; none if there is one site, or one node."""
    return [_border(f"site{site}") for site in range(fabric.sites)] if fabric.sites > 1 and nodes > 1 else []


def _sites(fabric: Fabric, rates: Rates) -> Plan:
    if fabric.sites == 1 or len(rates) == 1:
        return _planes(fabric, rates)
    if len(rates) % fabric.sites:
        raise FabricError("sites", fabric.sites, f"does not divide the {len(rates)} nodes, which are split evenly")
    each = len(rates) // fabric.sites
    parts = [rates[first : first + each] for first in range(0, len(rates), each)]
    plans = [_renamed(_planes(fabric, part), f"site{site}-") for site, part in enumerate(parts)]
    leaves = tuple(names for plan in plans for names in plan.leaves)
    below: dict[str, float] = defaultdict(float)
    for names, nics in zip(leaves, rates, strict=True):
        for leaf, rate in zip(names, nics, strict=True):
            below[leaf] += rate
    hops = [hop for plan in plans for hop in plan.hops]
    for leaf, rate in below.items():
        hops += both_ways(leaf, _border(leaf.partition("-")[0]), rate, fabric, ports=0, cost=_BORDER_COST)
    for a, b in permutations(range(fabric.sites), 2):
        far = across(_border(f"site{a}"), _border(f"site{b}"), fabric.site_bytes_per_s, fabric, ports=0)
        hops.append(far._replace(latency_s=fabric.site_latency_s))
    return _join(leaves, hops, plans)


def _join(leaves: Leaves, hops: Iterable[Hop], plans: Sequence[Plan]) -> Plan:
    """These leaves and links, with the levels of each part."""
    beyond = {leaf: rate for plan in plans for leaf, rate in plan.beyond.items()}
    return Plan(leaves, tuple(hops), beyond, partial(_levels, [plan.levels for plan in plans]))


def _levels(parts: Iterable[Levels]) -> Iterator[Level]:
    for levels in parts:
        yield from levels()


def _border(site: str) -> str:
    return f"{site}-border"


def _planes(fabric: Fabric, rates: Rates) -> Plan:
    planes, build_plane = fabric.planes, KINDS[fabric.kind].plan
    if planes == 1:
        return build_plane(fabric, rates)
    if planes > (fewest := min(len(nics) for nics in rates)):
        raise FabricError("planes", planes, f"a node has {fewest} NICs; expected at most as many planes")
    plans = [
        _renamed(build_plane(fabric, [nics[plane::planes] for nics in rates]), f"plane{plane}-")
        for plane in range(planes)
    ]
    leaves = tuple(
        tuple(plans[k % planes].leaves[node][k // planes] for k in range(len(nics))) for node, nics in enumerate(rates)
    )
    return _join(leaves, (hop for plan in plans for hop in plan.hops), plans)


def _renamed(plan: Plan, prefix: str) -> Plan:
    return Plan(
        tuple(tuple(prefix + leaf for leaf in leaves) for leaves in plan.leaves),
        tuple(hop._replace(src=prefix + hop.src, dst=prefix + hop.dst) for hop in plan.hops),
        {prefix + leaf: rate for leaf, rate in plan.beyond.items()},
        partial(_rename_levels, plan.levels, prefix),
    )


def _rename_levels(levels: Levels, prefix: str) -> Iterator[Level]:
    for level in levels():
        yield level._replace(part={prefix + leaf: part for leaf, part in level.part.items()})


def _degraded(fabric: Fabric, plan: Plan) -> Plan:
    """The plan with the rates of degraded links, and without those that are down."""
    if not fabric.degraded or len(plan.leaves) == 1:
        return plan
    factors: dict[str, float] = {}
    for link, factor in fabric.degraded:
        a, both, b = link.partition("<>")
        factors |= {f"{a}>{b}": factor, f"{b}>{a}": factor} if both else {link: factor}
    names = {hop.name for hop in plan.hops}
    for name in factors:
        if name not in names:
            some = ", such as " + ", ".join(hop.name for hop in plan.hops[:2]) if plan.hops else ""
            raise FabricError("degraded", name, f"no such link between switches; there are {len(names)}{some}")
    hops = [hop._replace(bytes_per_s=hop.bytes_per_s * factors.get(hop.name, 1.0)) for hop in plan.hops]
    left: dict[str, float] = defaultdict(float)
    for hop in hops:
        left[hop.src] += hop.bytes_per_s
    beyond = {leaf: min(rate, left[leaf]) for leaf, rate in plan.beyond.items()}
    return replace(plan, hops=tuple(hop for hop in hops if hop.bytes_per_s), beyond=beyond, levels=no_levels)
